/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Field types to key encodings. The order of the bytes is that in which the server compares values of the type; values
  that it takes for equal have the same bytes.
*/
#include "keys.h"
#include "collations.h"
#include <new>

namespace shim
{
namespace
{
const char no_key_type[]= "keys on columns of this type are";
const char no_key_collation[]= "keys on columns of this collation are";

/* Is only the beginning of the value in the key? */
bool is_prefix(const KEY_PART_INFO *part)
{
  return part->key_part_flag & (HA_PART_KEY_SEG | HA_BLOB_PART);
}

/* The whole column: a prefix part has a field of its own. */
const Field *column_of(const TABLE *table, const KEY_PART_INFO *part)
{
  return table->field[part->fieldnr - 1];
}

/* Is it compared by its collation? INET6, UUID and others of their kind are bytes, whatever their character set. */
bool is_text(const Field *field)
{
  switch (field->real_type()) {
  case MYSQL_TYPE_STRING:
    return field->key_type() != HA_KEYTYPE_BINARY && field->charset() != &my_charset_bin;
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
    return field->charset() != &my_charset_bin;
  default:
    return false;
  }
}

/* What its collation has more than one of. */
uint levels_of(const Field *field)
{
  return is_text(field) ? separate_levels(field->charset()) : 0;
}

/*
  By its collation. Where that does not pad, the server takes a value of CHAR once without the spaces at its end, in SQL,
  and once with them, in what it makes of LIKE and where it compares keys: they are in the index, as they are in InnoDB's.
*/
const char *init_text(const Field *field, EsKeyPart *to)
{
  const CHARSET_INFO *cs= field->charset();
  if (!has_key_weights(cs))
    return no_key_collation;
  to->collation= cs->number;
  if (!(cs->state & MY_CS_NOPAD))
    to->encoding= EsKeyEncoding::PaddedWeights;
  else
  {
    to->encoding= EsKeyEncoding::Weights;
    if (field->real_type() == MYSQL_TYPE_STRING)
    {
      to->collation|= filled_up;
      if (!to->prefix_bytes)
        to->prefix_bytes= field->field_length;
    }
  }
  return nullptr;
}

/*
  A part for each level, the first one first, is how strings are compared by levels. Levels behind the first are compared as
  if spaces followed, in a collation that does not pad, too.
*/
void add_levels(const Field *field, EsKeyPart part, std::vector<EsKeyPart> *to)
{
  const uint32_t collation= part.collation;
  for (uint level= 1, levels= levels_of(field); levels; level++, levels>>= 1)
    if (levels & 1)
    {
      part.collation= collation | level << level_shift;
      to->push_back(part);
      part.encoding= EsKeyEncoding::PaddedWeights;
      /* All of it; who wants the column has it from the first level's part. */
      if (!part.prefix_bytes && !(field->flags & BLOB_FLAG))
        part.prefix_bytes= field->field_length;
    }
}

const char *init_encoding(const Field *field, EsKeyPart *to)
{
  switch (field->real_type()) {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
    to->encoding= field->flags & UNSIGNED_FLAG ? EsKeyEncoding::Unsigned : EsKeyEncoding::Signed;
    return nullptr;
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_DATE:
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET:
    to->encoding= EsKeyEncoding::Unsigned;
    return nullptr;
  case MYSQL_TYPE_FLOAT:
  case MYSQL_TYPE_DOUBLE:
    to->encoding= EsKeyEncoding::Float;
    return nullptr;
  /* With mysql56_temporal_format=OFF: little-endian numbers, big-endian ones where there are fractions of seconds. */
  case MYSQL_TYPE_TIMESTAMP:
  case MYSQL_TYPE_DATETIME:
    to->encoding= field->decimals() ? EsKeyEncoding::Fixed : EsKeyEncoding::Unsigned;
    return nullptr;
  case MYSQL_TYPE_TIME:
    to->encoding= field->decimals() ? EsKeyEncoding::Fixed : EsKeyEncoding::Signed;
    return nullptr;
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_TIMESTAMP2:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIME2:
    to->encoding= EsKeyEncoding::Fixed;
    return nullptr;
  case MYSQL_TYPE_BIT:
    /* Of an engine that has no bits among the NULL bits, as this one: big-endian bytes. */
    to->encoding= EsKeyEncoding::Fixed;
    return static_cast<const Field_bit *>(field)->bit_len ? no_key_type : nullptr;
  case MYSQL_TYPE_STRING:
    to->encoding= EsKeyEncoding::Fixed;
    return is_text(field) ? init_text(field, to) : nullptr;
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
  case MYSQL_TYPE_GEOMETRY:
    to->encoding= EsKeyEncoding::Bytes;
    return is_text(field) ? init_text(field, to) : nullptr;
  default:
    return no_key_type;
  }
}

const char *add_part(const TABLE *table, const Record_layout &layout, const KEY_PART_INFO *part,
                     std::vector<EsKeyPart> *to)
{
  const Field *field= column_of(table, part);
  if (field->compression_method())
    return "keys on compressed columns are";
  EsKeyPart made= {};
  made.column= layout.place_of(field->field_index);
  made.descending= part->key_part_flag & HA_REVERSE_SORT;
  if (is_prefix(part))
    made.prefix_bytes= part->length;
  if (const char *why= init_encoding(field, &made))
    return why;
  if (levels_of(field))
    add_levels(field, made, to);
  else
    to->push_back(made);
  return nullptr;
}

const char *why_no_index(const KEY *key)
{
  if (key->flags & HA_FULLTEXT || key->algorithm == HA_KEY_ALG_FULLTEXT)
    return "FULLTEXT keys are";
  if (key->flags & HA_SPATIAL || key->algorithm == HA_KEY_ALG_RTREE)
    return "SPATIAL keys are";
  return nullptr;
}
}

bool key_tells_column(const KEY_PART_INFO *part)
{
  return !is_prefix(part);
}

uint32_t index_parts(const KEY *key, uint parts)
{
  uint32_t count= 0;
  for (uint i= 0; i < parts; i++)
    count+= std::max(1U, my_count_bits_uint32(levels_of(key->key_part[i].field)));
  return count;
}

/* Of CHAR that does not pad only a beginning is in the key, which is as long as the column: see init_text(). */
bool key_needs_row(const KEY_PART_INFO *part)
{
  const CHARSET_INFO *cs= part->field->charset();
  return part->field->real_type() == MYSQL_TYPE_STRING && cs != &my_charset_bin && cs->state & MY_CS_NOPAD;
}

bool Key_definitions::init(const TABLE *table, const Record_layout &layout, Refusal *refusal)
try
{
  parts_.clear();
  indexes_.clear();
  const TABLE_SHARE *share= table->s;
  size_t parts= 0;
  for (uint i= 0; i < share->keys; i++)
    parts+= index_parts(table->key_info + i, table->key_info[i].user_defined_key_parts);
  /* Indexes point to their parts, which stay where they are. */
  parts_.reserve(parts);
  indexes_.reserve(share->keys);
  for (uint i= 0; i < share->keys; i++)
  {
    const KEY *key= table->key_info + i;
    const char *why= why_no_index(key);
    EsIndex index= {};
    index.name= key->name.str;
    index.parts= parts_.data() + parts_.size();
    /* The server itself looks whether rows of the same hash are the same. */
    index.unique= key->flags & HA_NOSAME && key->algorithm != HA_KEY_ALG_LONG_HASH;
    for (uint j= 0; !why && j < key->user_defined_key_parts; j++)
      why= add_part(table, layout, key->key_part + j, &parts_);
    index.part_count= index_parts(key, key->user_defined_key_parts);
    if (why)
    {
      *refusal= {key, why};
      parts_.clear();
      indexes_.clear();
      return true;
    }
    indexes_.push_back(index);
  }
  return true;
}
catch (const std::bad_alloc &)
{
  return false;
}
}
