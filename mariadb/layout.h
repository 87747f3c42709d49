/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  How the server's record buffer of a table lies: the engine's layout, made from the table's definition.
*/
#ifndef ESKER_LAYOUT_INCLUDED
#define ESKER_LAYOUT_INCLUDED

#include "shim.h"
#include <vector>

namespace shim
{
/**
  Layout of one table's records. Depends on the definition alone: the same for CREATE and for each later open, or the
  open is refused.

  Columns that are not stored (virtual ones) have no layout column: they lie behind the stored ones in the record and
  the server computes them anew at each read. But for those in a key, a hash that the server makes for a long UNIQUE key
  among them: they are kept with the row like stored ones, since the engine makes keys of rows alone.
*/
class Record_layout
{
public:
  /** False: out of memory. */
  bool init(const TABLE *table);

  EsLayout c_layout() const;
  /** Do records of this and of another table lie alike? */
  bool is_same(const Record_layout &other) const;
  uint32 image_bytes() const { return image_bytes_; }
  size_t column_count() const { return columns_.size(); }
  bool has_blobs() const { return has_blobs_; }

  /** Is a virtual column kept? */
  bool keeps_virtual() const { return !made_virtual_.empty(); }
  /** Indexes of the fields that are virtual and kept, and of those virtual ones that they are made of; in their order. */
  const std::vector<uint16> &made_virtual() const { return made_virtual_; }

  /** The place among the layout's columns of a field that has one. */
  uint32 place_of(uint16 field_index) const;

  /** Bytes that a column bitmap takes. */
  size_t bitmap_bytes() const { return (columns_.size() + 7) / 8; }
  /** The layout's columns among those of read_set. */
  void bitmap_of(const MY_BITMAP *read_set, uchar *bitmap) const;

private:
  void add_made(const TABLE *table, std::vector<uint16> wanted);

  std::vector<EsColumn> columns_;
  /* Field index of each column. */
  std::vector<uint16> fields_;
  std::vector<uint16> made_virtual_;
  uint32 image_bytes_= 0;
  uint32 head_bytes_= 0;
  bool has_blobs_= false;
};
}

#endif
