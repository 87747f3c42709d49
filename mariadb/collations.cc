/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Weights of strings. They are made in any thread, the engine's too.

  Weights depend on the string and the collation's number alone: what is in an index was made by an earlier server.
*/
#include "collations.h"
#include "error_log.h"
#include <my_sys.h>
#include <atomic>
#include <string>

namespace shim
{
namespace
{
/* No bound of what the server's functions are asked for: they take a number of weights. */
constexpr uint all_weights= UINT_MAX / 16;

/* The server's own lookup counts its uses in memory that all threads share. */
const CHARSET_INFO *find_collation(uint32_t number)
{
  static std::atomic<const CHARSET_INFO *> found[MY_ALL_CHARSETS_SIZE];
  if (number >= array_elements(found))
    return nullptr;
  const CHARSET_INFO *cs= found[number].load(std::memory_order_acquire);
  if (unlikely(!cs))
  {
    join_server();
    if ((cs= get_charset(number, MYF(0))))
      found[number].store(cs, std::memory_order_release);
  }
  return cs;
}
}

/* Unicode's collations alone give the weights of a level by themselves. */
uint separate_levels(const CHARSET_INFO *cs)
{
  return cs->levels_for_order > 1 && cs->uca && !(cs->state & MY_CS_BINSORT) ? cs->levels_for_order : 0;
}

/*
  In order of bytes: always. Else not where strings are compared level by level and the weights of all levels lie one
  behind the other, with nothing between. Nor where weights are made otherwise than strings are compared
  (tests/server/collations_test.py tries them all): big5 has characters that weigh the same and differ, tis620 changes the
  order of characters in one and not in the other. Nor a collation of a file: it can change.
*/
bool has_key_weights(const CHARSET_INFO *cs)
{
  if (!(cs->state & MY_CS_COMPILED))
    return false;
  if (cs->state & MY_CS_BINSORT || separate_levels(cs))
    return true;
  return cs->levels_for_order <= 1 && strcmp(cs->cs_name.str, "big5") && strcmp(cs->cs_name.str, "tis620");
}

extern "C" size_t weights_of(void *, uint32_t collation, const uint8_t *value, size_t bytes, uint32_t prefix_bytes,
                             uint8_t *weights, size_t room)
try
{
  const CHARSET_INFO *cs= find_collation(collation & (filled_up - 1));
  if (unlikely(!cs))
    return ES_NO_WEIGHTS;
  const char *text= reinterpret_cast<const char *>(value);
  uchar space[MY_CS_MBMAXLEN];
  if (unlikely(bytes < cs->mbminlen) && bytes == 1 && *text == ' ')
  {
    const int length= my_ci_wc_mb(cs, ' ', space, space + sizeof(space));
    text= reinterpret_cast<const char *>(space);
    bytes= length > 0 ? static_cast<size_t>(length) : 0;
  }
  std::string filled;
  if (prefix_bytes)
  {
    const size_t chars= prefix_bytes / cs->mbmaxlen;
    bytes= std::min(bytes, my_ci_charpos(cs, text, text + bytes, chars));
    if (collation & filled_up)
    {
      const size_t spaces= chars - std::min(chars, my_ci_numchars(cs, text, text + bytes));
      filled.assign(text, bytes);
      filled.resize(bytes + spaces * cs->mbminlen);
      my_ci_fill(cs, &filled[bytes], filled.size() - bytes, ' ');
      text= filled.data();
      bytes= filled.size();
    }
  }
  /* Some write as much as there is string, whatever room they are told. */
  if (room < bytes)
    return bytes;
  const uint level= collation >> level_shift;
  return cs->coll->strnxfrm(cs, weights, room, all_weights, reinterpret_cast<const uchar *>(text), bytes,
                            level ? MY_STRXFRM_LEVEL1 << (level - 1) : 0);
}
catch (const std::bad_alloc &)
{
  return ES_NO_WEIGHTS;
}
}
