/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Field types to column kinds. A kind may only drop bytes that it can put back: what is decoded is the image that was
  stored, byte for byte, in every column read.
*/
#include "layout.h"
#include <algorithm>
#include <new>

namespace shim
{
namespace
{
/*
  What the server makes of a column's bytes. It tells nothing of what ALTER TABLE changes without a copy: names, defaults, the widths
  in which numbers are shown, the kind of a geometry.
*/
uint32_t type_number_of(const Field *field)
{
  const uint32_t number= static_cast<uint32_t>(field->real_type()) + 1;
  switch (field->real_type()) {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
  case MYSQL_TYPE_FLOAT:
  case MYSQL_TYPE_DOUBLE:
    return number | (field->flags & UNSIGNED_FLAG ? 1U << 16 : 0);
  case MYSQL_TYPE_NEWDECIMAL:
    return number | (field->flags & UNSIGNED_FLAG ? 1U << 16 : 0) | field->decimals() << 24;
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIMESTAMP2:
    return number | field->decimals() << 24;
  /* With mysql56_temporal_format=OFF. One more: without any they are not as wide as with few, but as with many. */
  case MYSQL_TYPE_TIME:
  case MYSQL_TYPE_DATETIME:
  case MYSQL_TYPE_TIMESTAMP:
    return number | (field->decimals() + 1) << 24;
  default:
    return number;
  }
}

/* What a version told that did not tell of decimals in the older temporal formats; 0: the same as this one. */
uint32_t earlier_type_number_of(const Field *field)
{
  switch (field->real_type()) {
  case MYSQL_TYPE_TIME:
  case MYSQL_TYPE_DATETIME:
  case MYSQL_TYPE_TIMESTAMP:
    return static_cast<uint32_t>(field->real_type()) + 1;
  default:
    return 0;
  }
}

EsColumn column_of(const Field *field, const uchar *record)
{
  EsColumn column= {};
  column.offset= static_cast<uint32_t>(field->ptr - record);
  column.type_number= type_number_of(field);
  column.earlier_type_number= earlier_type_number_of(field);
  if (field->null_ptr)
  {
    column.null_byte= static_cast<uint32_t>(field->null_ptr - record);
    column.null_mask= field->null_bit;
  }
  if (field->flags & BLOB_FLAG)
  {
    /* BLOB, TEXT, JSON, GEOMETRY, compressed or not. */
    column.kind= EsColumnKind::Blob;
    column.len_bytes= static_cast<uint8_t>(static_cast<const Field_blob *>(field)->pack_length_no_ptr());
    return column;
  }
  column.kind= EsColumnKind::Fixed;
  column.width= field->pack_length_in_rec();
  switch (field->real_type()) {
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VARCHAR_COMPRESSED:
    column.kind= EsColumnKind::Var;
    column.len_bytes= static_cast<uint8_t>(static_cast<const Field_varstring *>(field)->length_bytes);
    column.width= field->field_length;
    break;
  case MYSQL_TYPE_STRING:
    /* CHAR ends in spaces and BINARY in zeros, except that wide character sets end in more than one byte's pattern. */
    if (field->charset()->mbminlen == 1)
    {
      column.kind= EsColumnKind::Padded;
      column.pad= field->charset()->pad_char;
    }
    break;
  default:
    break;
  }
  return column;
}

bool is_in_key(const TABLE *table, const Field *field)
{
  for (const KEY *key= table->key_info; key < table->key_info + table->s->keys; key++)
    for (uint i= 0; i < key->user_defined_key_parts; i++)
      if (key->key_part[i].fieldnr == field->field_index + 1U)
        return true;
  return false;
}

bool are_same(const EsColumn &a, const EsColumn &b)
{
  return a.offset == b.offset && a.width == b.width && a.null_byte == b.null_byte && a.null_mask == b.null_mask &&
         a.len_bytes == b.len_bytes && a.pad == b.pad && a.kind == b.kind && a.type_number == b.type_number;
}

uint32_t end_of(const EsColumn &column)
{
  switch (column.kind) {
  case EsColumnKind::Var:
    return column.offset + column.len_bytes + column.width;
  case EsColumnKind::Blob:
    return column.offset + column.len_bytes + static_cast<uint32_t>(sizeof(char *));
  default:
    return column.offset + column.width;
  }
}
}

bool Record_layout::init(const TABLE *table)
try
{
  const TABLE_SHARE *share= table->s;
  const uchar *record= table->record[0];
  columns_.clear();
  fields_.clear();
  made_virtual_.clear();
  std::vector<uint16> kept;
  columns_.reserve(share->fields);
  fields_.reserve(share->fields);
  has_blobs_= false;
  head_bytes_= share->null_bytes;
  image_bytes_= head_bytes_;
  for (Field **field= table->field; *field; field++)
  {
    if (!(*field)->stored_in_db())
    {
      if (!is_in_key(table, *field))
        continue;
      kept.push_back((*field)->field_index);
    }
    EsColumn column= column_of(*field, record);
    image_bytes_= std::max(image_bytes_, end_of(column));
    has_blobs_|= column.kind == EsColumnKind::Blob;
    columns_.push_back(column);
    fields_.push_back((*field)->field_index);
  }
  DBUG_ASSERT(image_bytes_ <= share->reclength);
  if (!kept.empty())
    add_made(table, kept);
  return true;
}
catch (const std::bad_alloc &)
{
  return false;
}

/* A generated column is made of such as come before it. */
void Record_layout::add_made(const TABLE *table, std::vector<uint16> wanted)
{
  std::vector<my_bitmap_map> bits((table->s->fields + 8 * sizeof(my_bitmap_map) - 1) / (8 * sizeof(my_bitmap_map)));
  MY_BITMAP fields;
  my_bitmap_init(&fields, bits.data(), table->s->fields);
  for (uint16 field : wanted)
    bitmap_set_bit(&fields, field);
  for (uint at= table->s->fields; at--;)
  {
    const Field *field= table->field[at];
    if (field->stored_in_db() || !bitmap_is_set(&fields, at))
      continue;
    made_virtual_.insert(made_virtual_.begin(), static_cast<uint16>(at));
    if (field->vcol_info && field->vcol_info->expr)
      field->vcol_info->expr->walk(&Item::register_field_in_bitmap, false, &fields);
  }
}

bool Record_layout::is_same(const Record_layout &other) const
{
  return image_bytes_ == other.image_bytes_ && head_bytes_ == other.head_bytes_ &&
         std::equal(columns_.begin(), columns_.end(), other.columns_.begin(), other.columns_.end(), are_same);
}

EsLayout Record_layout::c_layout() const
{
  EsLayout layout= {};
  layout.image_bytes= image_bytes_;
  layout.head_bytes= head_bytes_;
  layout.column_count= static_cast<uint32_t>(columns_.size());
  layout.columns= columns_.data();
  return layout;
}

uint32 Record_layout::place_of(uint16 field_index) const
{
  const auto found= std::lower_bound(fields_.begin(), fields_.end(), field_index);
  DBUG_ASSERT(found != fields_.end() && *found == field_index);
  return static_cast<uint32>(found - fields_.begin());
}

void Record_layout::bitmap_of(const MY_BITMAP *read_set, uchar *bitmap) const
{
  memset(bitmap, 0, bitmap_bytes());
  for (size_t i= 0; i < fields_.size(); i++)
    if (bitmap_is_set(read_set, fields_[i]))
      bitmap[i / 8]|= static_cast<uchar>(1U << (i % 8));
}
}
