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
#include <initializer_list>
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

extern "C" size_t collation_text(void *, uint32_t collation, const uint8_t *value, size_t bytes, uint8_t *text,
                                 size_t room)
{
  const CHARSET_INFO *cs= find_collation(collation & (filled_up - 1));
  if (!cs)
    return 0;
  uint errors;
  return my_convert(reinterpret_cast<char *>(text), static_cast<uint32>(room), &my_charset_utf8mb4_bin,
                    reinterpret_cast<const char *>(value), static_cast<uint32>(bytes), cs, &errors);
}

namespace
{
/* FNV-1a */
class Hash
{
public:
  void add(const uchar *bytes, size_t count)
  {
    for (size_t i= 0; i < count; i++)
      value_= (value_ ^ bytes[i]) * 0x100000001b3;
  }
  uint64_t value() const { return value_; }

private:
  uint64_t value_= 0xcbf29ce484222325;
};

/* What a string of a few code points weighs; nothing if the character set lacks one of them. */
void add_weights(const CHARSET_INFO *cs, uint32_t collation, std::initializer_list<my_wc_t> string, Hash *hash)
{
  uchar text[4 * MY_CS_MBMAXLEN], weights[512];
  uchar *end= text;
  for (my_wc_t wc : string)
  {
    const int length= my_ci_wc_mb(cs, wc, end, text + sizeof(text));
    if (length <= 0)
      return;
    end+= length;
  }
  const size_t bytes= weights_of(nullptr, collation, text, static_cast<size_t>(end - text), 0, weights, sizeof(weights));
  if (bytes > sizeof(weights))
    return;
  hash->add(weights, bytes);
  hash->add(reinterpret_cast<const uchar *>(&bytes), sizeof(bytes));
}
}

/* All characters of two bytes in UTF-16, and pairs of letters: languages take some for one letter. */
extern "C" uint64_t weights_version(void *, uint32_t collation)
{
  collation&= ~filled_up;
  const CHARSET_INFO *cs= find_collation(collation & (filled_up - 1));
  if (!cs)
    return 0;
  Hash hash;
  for (my_wc_t wc= 1; wc < 0x10000; wc++)
    if (wc < 0xd800 || wc > 0xdfff)
      add_weights(cs, collation, {wc}, &hash);
  for (my_wc_t first= 'A'; first <= 'z'; first++)
    for (my_wc_t second= 'A'; second <= 'z'; second++)
      add_weights(cs, collation, {first, second}, &hash);
  return hash.value();
}
}
