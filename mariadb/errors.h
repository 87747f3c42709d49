/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  The one table that maps the engine's status codes to the server's error numbers, and what each asks of the running
  transaction.
*/
#ifndef ESKER_ERRORS_INCLUDED
#define ESKER_ERRORS_INCLUDED

#include "shim.h"

namespace shim
{
/** HA_ERR_* of a status; 0 for EsStatus::Ok. */
int ha_error(EsStatus status);

/**
  Maps a status that a session call returned, and tells the server when the whole transaction or the statement must be
  rolled back.
*/
int ha_error(THD *thd, EsStatus status);

/** Are the engine's own words worth more than the server's message for this status? */
bool has_detail(EsStatus status);

/** Raises the engine's words as an SQL error, with the SQL error number that fits the status. */
void raise(EsStatus status, const char *text, myf flags= MYF(0));

/**
  Of a wait that ended badly, or a table that is another one by now: raises the server's own error, for a statement of which the
  server says only that it failed. False: it is none of these.
*/
bool raise_plain(EsStatus status);

/**
  Raises that a table is there of which the server knows nothing, and what to do about it: it was dropped while the engine was
  missing, say, or its .frm file was lost.
*/
void raise_left_over(const char *text);

/** Raises the words of the session's last failure. Returns its HA_ERR_*. */
int raise_last(THD *thd, const EsSession *session);
}

#endif
