/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Field types to what the engine shows their values as.
*/
#include "shown.h"
#include <new>

namespace shim
{
namespace
{
/* Those of INET6 and the like are plugins: their classes are not the shim's to name. */
EsShownAs shown_as_of_string(const Field *field)
{
  const LEX_CSTRING type= field->type_handler()->name().lex_cstring();
  if (!strcmp(type.str, "inet4"))
    return EsShownAs::Inet4;
  if (!strcmp(type.str, "inet6"))
    return EsShownAs::Inet6;
  if (!strcmp(type.str, "uuid"))
    return EsShownAs::Uuid;
  return field->charset() == &my_charset_bin ? EsShownAs::Binary : EsShownAs::Plain;
}

EsShownAs shown_as(const Field *field)
{
  switch (field->real_type()) {
  case MYSQL_TYPE_FLOAT:
  case MYSQL_TYPE_DOUBLE:
    return field->decimals() < FLOATING_POINT_DECIMALS ? EsShownAs::Rounded : EsShownAs::Plain;
  case MYSQL_TYPE_BIT:
    return EsShownAs::Bits;
  case MYSQL_TYPE_YEAR:
    return EsShownAs::Year;
  case MYSQL_TYPE_NEWDATE:
    return EsShownAs::Date;
  case MYSQL_TYPE_DATETIME2:
    return EsShownAs::DateTime;
  case MYSQL_TYPE_TIMESTAMP2:
    return EsShownAs::Timestamp;
  case MYSQL_TYPE_TIME2:
    return EsShownAs::Time;
  case MYSQL_TYPE_DATETIME:
    return EsShownAs::NumberDateTime;
  case MYSQL_TYPE_TIMESTAMP:
    return EsShownAs::NumberTimestamp;
  case MYSQL_TYPE_TIME:
    return EsShownAs::NumberTime;
  case MYSQL_TYPE_NEWDECIMAL:
    return EsShownAs::Decimal;
  case MYSQL_TYPE_ENUM:
    return EsShownAs::Enum;
  case MYSQL_TYPE_SET:
    return EsShownAs::Set;
  case MYSQL_TYPE_GEOMETRY:
    return EsShownAs::Binary;
  case MYSQL_TYPE_STRING:
    return shown_as_of_string(field);
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
    return field->charset() == &my_charset_bin ? EsShownAs::Binary : EsShownAs::Plain;
  default:
    return EsShownAs::Plain;
  }
}
}

Shown_columns::Names::Names(const Field_enum *field)
{
  const TYPELIB *names= field->typelib;
  texts.reserve(names->count);
  pointers.reserve(names->count);
  for (uint i= 0; i < names->count; i++)
  {
    uint errors;
    const uint32 length= names->type_lengths[i];
    std::string text(length * my_charset_utf8mb4_bin.mbmaxlen, '\0');
    text.resize(my_convert(&text[0], static_cast<uint32>(text.size()), &my_charset_utf8mb4_bin, names->type_names[i],
                           length, field->charset(), &errors));
    texts.push_back(std::move(text));
    pointers.push_back(texts.back().c_str());
  }
}

void Shown_columns::add_names(const Field *field, EsShown *to)
{
  names_.push_back(std::make_unique<Names>(static_cast<const Field_enum *>(field)));
  to->names= names_.back()->pointers.data();
  to->name_count= static_cast<uint32_t>(names_.back()->pointers.size());
}

bool Shown_columns::init(const TABLE *table, const Record_layout &layout)
try
{
  columns_.assign(layout.column_count(), EsShown{});
  names_.clear();
  for (const KEY *key= table->key_info; key < table->key_info + table->s->keys; key++)
    for (uint i= 0; i < key->user_defined_key_parts; i++)
    {
      const Field *field= table->field[key->key_part[i].fieldnr - 1];
      EsShown *column= &columns_[layout.place_of(field->field_index)];
      if (column->shown_as != EsShownAs::Plain)
        continue;
      column->shown_as= shown_as(field);
      column->decimals= static_cast<uint8_t>(field->decimals());
      if (column->shown_as == EsShownAs::Decimal)
        column->digits= static_cast<uint8_t>(static_cast<const Field_new_decimal *>(field)->precision);
      if (column->shown_as == EsShownAs::Year)
        column->digits= static_cast<uint8_t>(field->field_length);
      else if (field->flags & ZEROFILL_FLAG)
        column->filled= static_cast<uint8_t>(field->field_length);
      if (column->shown_as == EsShownAs::Enum || column->shown_as == EsShownAs::Set)
        add_names(field, column);
    }
  return true;
}
catch (const std::bad_alloc &)
{
  return false;
}
}
