/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  A table's part in a statement, as ANALYZE FORMAT=JSON and the slow log tell it.
*/
#ifndef ESKER_WORK_INCLUDED
#define ESKER_WORK_INCLUDED

#include "trace.h"

namespace shim
{
/**
  Adds what the session does while it lives to the handler's figures, if the server wants them: else it is one comparison.
  Around calls of the engine, never one within another.
*/
class Work
{
public:
  Work(ha_handler_stats *stats, const EsSession *session) : stats_(stats), session_(session)
  {
    if (unlikely(stats_ != nullptr))
      es_session_work(session_, &before_);
  }
  ~Work()
  {
    if (unlikely(stats_ != nullptr))
      add();
  }
  Work(const Work &)= delete;
  Work &operator=(const Work &)= delete;

private:
  void add() const;

  Traced_call traced_;
  ha_handler_stats *stats_;
  const EsSession *session_;
  EsWork before_;
};
}

#endif
