/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  What the optimizer is told, so that it makes the plans that it makes for InnoDB: rows per key, and what reading costs.
*/
#include "ha_esker.h"

using namespace shim;

namespace
{
/* What a row of InnoDB's takes beside its columns. */
constexpr double row_overhead_bytes= 20;
/* So many pages InnoDB counts of a range. */
constexpr double counted_pages= 10;
}

/* In pages of InnoDB's size, full ones, of rows that are not compressed. */
double ha_esker::scan_time()
{
  return (static_cast<double>(row_bytes_) + row_overhead_bytes * static_cast<double>(stats.records)) / key_block_bytes + 1;
}

/*
  Rows are mostly written in the order of their primary key, so those of a range of it lie together: as part of a scan, after
  a seek.
*/
double ha_esker::read_time(uint index, uint ranges, ha_rows rows)
{
  if (index != table->s->primary_key)
    return handler::read_time(index, ranges, rows);
  if (rows >= stats.records)
    return scan_time();
  return ranges + static_cast<double>(rows) / static_cast<double>(stats.records) * scan_time();
}

/*
  Of a range in an index, for the optimizer: where InnoDB would not count them all it says that there are twice as many, up to
  half of the table, as reading rows by a key costs more than the optimizer thinks. So it does here.
*/
ha_rows ha_esker::weighed_rows(uint index, ha_rows rows) const
{
  const double key_bytes= table->key_info[index].key_length + ref_length;
  const double row_bytes= static_cast<double>(row_bytes_) / std::max<ha_rows>(stats.records, 1) + row_overhead_bytes;
  const double pages= static_cast<double>(rows) * (index == table->s->primary_key ? row_bytes : key_bytes) / key_block_bytes;
  return pages > counted_pages ? std::max(rows, std::min(2 * rows, stats.records / 2)) : rows;
}

/* When the server asks for what does not change, or when the table is another tenth larger or smaller than when they were told. */
void ha_esker::tell_rows_per_key(uint64_t rows, uint flag)
{
  const bool first= flag & HA_STATUS_CONST;
  /* They are the whole table's: of its partitions the largest one is asked for them, once all are open. */
  if (first && flag & HA_STATUS_OPEN && table->file != this)
  {
    told_rows_= rows;
    return;
  }
  const uint64_t change= rows > told_rows_ ? rows - told_rows_ : told_rows_ - rows;
  if (table->s->keys && (first || change > told_rows_ / 10) && find_rows_per_key(rows == 0))
    told_rows_= rows;
}

/*
  Of what is not known, 0, the server makes its own guess. Halved unless the server is told not to, as InnoDB's are. An empty
  table's are what was told last, or 1, as InnoDB's are: told anew once there is a row. False: nothing is known of any key but a
  unique one.
*/
bool ha_esker::find_rows_per_key(bool is_empty)
{
  const ulong divisor= thd_double_innodb_cardinality(ha_thd()) ? 2 : 1;
  bool known= false;
  for (uint i= 0; i < table->s->keys; i++)
  {
    KEY *key= table->key_info + i;
    const uint parts= key->user_defined_key_parts;
    double rows[MAX_REF_PARTS * MY_STRXFRM_NLEVELS];
    const bool found= es_rows_alike(table_, i, rows, index_parts(key, parts));
    known|= found;
    const bool is_unique= (key->flags & (HA_NOSAME | HA_NULL_PART_KEY)) == HA_NOSAME;
    /* Other open instances of the table have them in the same place. */
    for (uint j= 0; j < parts; j++)
      if (is_unique && j + 1 == parts)
        key->rec_per_key[j]= 1;
      else if (found)
        key->rec_per_key[j]= std::max<ulong>(static_cast<ulong>(rows[index_parts(key, j + 1) - 1] + 0.5) / divisor, 1);
      else
        key->rec_per_key[j]= is_empty ? std::max<ulong>(key->rec_per_key[j], 1) : 0;
  }
  return known;
}
