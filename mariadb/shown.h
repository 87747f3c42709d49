/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  How people see the columns of a table's keys, where the engine tells of keys.
*/
#ifndef ESKER_SHOWN_INCLUDED
#define ESKER_SHOWN_INCLUDED

#include "layout.h"
#include <memory>
#include <string>
#include <vector>

namespace shim
{
/** Depends on the definition alone. Columns that are in no key are left out: nobody is told of them. */
class Shown_columns
{
public:
  /** False: out of memory. */
  bool init(const TABLE *table, const Record_layout &layout);

  const EsShown *columns() const { return columns_.data(); }
  size_t count() const { return columns_.size(); }

private:
  /* Of an ENUM or a SET, in UTF-8. */
  struct Names
  {
    explicit Names(const Field_enum *field);

    std::vector<std::string> texts;
    std::vector<const char *> pointers;
  };

  void add_names(const Field *field, EsShown *to);

  std::vector<EsShown> columns_;
  std::vector<std::unique_ptr<Names>> names_;
};
}

#endif
