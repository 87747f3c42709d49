/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  The keys of a table, as the engine's indexes, made from the table's definition.
*/
#ifndef ESKER_KEYS_INCLUDED
#define ESKER_KEYS_INCLUDED

#include "layout.h"
#include <vector>

namespace shim
{
/**
  Depends on the definition alone, but for names: the same for CREATE and for each later open, or the open is refused.
*/
class Key_definitions
{
public:
  /** What of a key cannot be, in words; null: nothing. */
  struct Refusal
  {
    const KEY *key= nullptr;
    const char *why= nullptr;
  };

  /** False: out of memory. `refusal` says of which key there can be no index; then there are none. */
  bool init(const TABLE *table, const Record_layout &layout, Refusal *refusal);

  const EsIndex *indexes() const { return indexes_.data(); }
  uint32_t count() const { return static_cast<uint32_t>(indexes_.size()); }

private:
  std::vector<EsKeyPart> parts_;
  std::vector<EsIndex> indexes_;
};

/** Does an entry of a key tell the column of this part, so that the row need not be read for it? */
bool key_tells_column(const KEY_PART_INFO *part);

/** Then, must the engine look at the row all the same? It does so by itself where rows are asked for. */
bool key_needs_row(const KEY_PART_INFO *part);

/** How many parts of the engine's index the first parts of a key are: a string has one for each level of its collation. */
uint32_t index_parts(const KEY *key, uint parts);
}

#endif
