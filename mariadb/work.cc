/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  A table's part in a statement. Esker changes no page in place: what it tells as pages that were updated are the buffers that a
  large write has filled with rows, as old rows the versions that its reads passed over, and as prefetched the blocks that came
  along with one that was wanted.
*/
#include "work.h"

namespace shim
{
void Work::add() const
{
  EsWork now;
  es_session_work(session_, &now);
  stats_->pages_accessed+= now.blocks - before_.blocks;
  stats_->pages_read_count+= now.reads - before_.reads;
  stats_->pages_prefetched+= now.blocks_ahead - before_.blocks_ahead;
  stats_->pages_updated+= now.buffers - before_.buffers;
  stats_->undo_records_read+= now.versions_passed - before_.versions_passed;
  const double seconds= static_cast<double>(now.read_ns - before_.read_ns) / 1e9;
  stats_->pages_read_time+= static_cast<ulonglong>(seconds * timer_tracker_frequency());
}
}
