/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  AUTO_INCREMENT: the engine counts, one counter a table; a value that was given out does not come again.
*/
#include "ha_esker.h"
#include "errors.h"

using namespace shim;

/* As many values as the server foresees rows. */
void ha_esker::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                                  ulonglong *reserved)
{
  /* The server's way of reading both variables together. */
  if (offset > increment)
    offset= 1;
  *first= ULONGLONG_MAX;
  *reserved= wanted;
  int error= 0;
  EsSession *s= session(&error);
  if (!s)
    return;
  uint64_t value;
  if (fail(s, es_take_auto_increment(s, table_, offset, increment, wanted, &value)))
    return;
  if (value)
    *first= value;
}

/* A row with a value of its own, or one that gets the next. */
int ha_esker::write_numbered(const uchar *buf)
{
  if (int error= update_auto_increment())
    return error;
  if (int error= insert(buf))
    return error;
  /* Of one that was given out it knows; INSERT_ID may have told another. */
  return note_number(table->next_number_field);
}

/* The row that was written has a value of its own: those to come are greater. */
int ha_esker::note_number(Field *field)
{
  const longlong value= field->val_int();
  if (field->is_null() || (value <= 0 && !(field->flags & UNSIGNED_FLAG)) ||
      static_cast<ulonglong>(value) < es_next_auto_increment(table_))
    return 0;
  int error= 0;
  EsSession *s= session(&error);
  return s ? fail(s, es_auto_increment_used(s, table_, static_cast<uint64_t>(value))) : error;
}

/* TRUNCATE has made the engine begin anew. */
int ha_esker::reset_auto_increment(ulonglong)
{
  return 0;
}
