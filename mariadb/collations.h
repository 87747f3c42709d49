/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  What strings weigh: the server's collations, as the engine's keys need them.
*/
#ifndef ESKER_COLLATIONS_INCLUDED
#define ESKER_COLLATIONS_INCLUDED

#include "shim.h"

namespace shim
{
/**
  Added to a collation's number: the string is filled up with spaces to the characters of its prefix before it is weighed.
  So the server takes values of CHAR, even where the collation does not pad.
*/
inline constexpr uint32_t filled_up= 0x10000;

/**
  Bits of a collation's number that say by which of its levels strings are weighed, 1 being the first; 0: there is one
  level, or what the collation makes of all of them.
*/
inline constexpr uint level_shift= 20;

/** Does comparing the weights as bytes compare the strings as the server does, so that keys can be made of them? */
bool has_key_weights(const CHARSET_INFO *cs);

/**
  Where strings are compared level by level, each level has weights of its own: which levels there are, a bit each. 0:
  strings have weights once.
*/
uint separate_levels(const CHARSET_INFO *cs);

/** EsOptions::weights_version: a hash of what the characters weigh that a server's update is likely to change. */
extern "C" uint64_t weights_version(void *, uint32_t collation);

/** EsOptions::weights. */
extern "C" size_t weights_of(void *, uint32_t collation, const uint8_t *value, size_t bytes, uint32_t prefix_bytes,
                             uint8_t *weights, size_t room);

/** EsOptions::collation_text. */
extern "C" size_t collation_text(void *, uint32_t collation, const uint8_t *value, size_t bytes, uint8_t *text,
                                 size_t room);
}

#endif
