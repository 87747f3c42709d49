/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  AUTO_INCREMENT: the engine counts, one counter a table; a value that a row got, or was to get, does not come again.
*/
#include "ha_esker.h"
#include "errors.h"
#include "variables.h"
#include "sql_parse.h"

using namespace shim;

namespace
{
/* Statements whose number of rows the server knows, and a replica's rows, need nobody to wait, as with InnoDB. */
EsCounting counting_of(const THD *thd)
{
  switch (autoinc_lock_mode()) {
  case Autoinc_lock_mode::traditional:
    return EsCounting::Alone;
  case Autoinc_lock_mode::consecutive:
    switch (thd_sql_command(thd)) {
    case SQLCOM_INSERT:
    case SQLCOM_REPLACE:
    case SQLCOM_END:
      return EsCounting::AtOnce;
    default:
      return EsCounting::Alone;
    }
  case Autoinc_lock_mode::interleaved:
    break;
  }
  return EsCounting::Interleaved;
}
}

/*
  As many values as the server foresees rows, or as are left. Where none is, the server refuses what comes next by itself, but
  for a FLOAT or DOUBLE, which may be rounded to a value that is there.
*/
void ha_esker::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                                  ulonglong *reserved)
{
  /* The server's way of reading both variables together. */
  if (offset > increment)
    offset= 1;
  *first= ULONGLONG_MAX;
  *reserved= wanted;
  EsSession *s= session(&numbers_.error);
  if (!s)
    return;
  uint64_t value, end;
  numbers_.error= fail(s, es_take_auto_increment(s, table_, offset, increment, wanted,
                                                 table->next_number_field->get_max_int_value(), counting_of(ha_thd()),
                                                 &value, &end));
  if (numbers_.error)
    return;
  *first= value;
  if (value == end)
    return;
  *reserved= (end - value + increment - 1) / increment;
  numbers_= {value, value, end, increment, 0};
}

/* The statement needs no more of them: called when it has ended well, and when not. */
void ha_esker::release_auto_increment()
{
  const Numbers numbers= numbers_;
  numbers_= Numbers();
  if (!numbers.end || !connection_)
    return;
  EsSession *s= connection_->session();
  (void) es_end_auto_increment(s, table_, numbers.unused, numbers.end);
}

/* A row with a value of its own, or one that gets the next. */
int ha_esker::write_numbered(const uchar *buf)
{
  numbers_.error= 0;
  if (int error= update_auto_increment())
    return numbers_.error ? numbers_.error : error;
  const ulonglong value= static_cast<ulonglong>(table->next_number_field->val_int());
  /* INSERT_ID may have told another than was given out. */
  const bool given_out= value >= numbers_.first && value < numbers_.end;
  /* Whether the row gets in or not: the one that is there already may be why it does not. */
  if (given_out && value >= numbers_.unused)
    numbers_.unused= value + std::min(numbers_.step, numbers_.end - value);
  if (int error= insert(buf))
    return error;
  return given_out ? 0 : note_number(table->next_number_field);
}

/*
  The row that was written has a value of its own: those to come are greater, after a crash by what its own transaction has logged of
  it, whoever has brought a greater one meanwhile. Not so a negative one, or one from which a FLOAT
  or DOUBLE does not tell its neighbours.
*/
int ha_esker::note_number(Field *field)
{
  const uint64_t value= static_cast<uint64_t>(field->val_int());
  if (field->is_null() || value > field->get_max_int_value())
    return 0;
  int error= 0;
  EsSession *s= session(&error);
  return s ? fail(s, es_auto_increment_used(s, table_, value)) : error;
}

/* OPTIMIZE TABLE, too, has its table open for writing, and writes no numbers. */
bool ha_esker::autoinc_lock_mode_stmt_unsafe() const
{
  return sqlcom_can_generate_row_events(ha_thd()) && autoinc_lock_mode() == Autoinc_lock_mode::interleaved;
}

/* TRUNCATE has made the engine begin anew. */
int ha_esker::reset_auto_increment(ulonglong)
{
  return 0;
}
