/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  System variables (esker_*), their values, and the table option that a variable gives the default of.
*/
#ifndef ESKER_VARIABLES_INCLUDED
#define ESKER_VARIABLES_INCLUDED

#include "shim.h"
#include <string>

/** Table options as CREATE TABLE gives them; the server finds the struct by this name. */
struct ha_table_option_struct
{
  uint compression;                             /* EsCompression, as a number */
};

namespace shim
{
/** Null-terminated, for st_maria_plugin. */
extern st_mysql_sys_var *system_variables[];
extern ha_create_table_option table_options[];

/**
  What the engine is opened with. `folder` takes the data folder's name and must outlive the options. False: they make no sense, and
  `why` says so.
*/
bool fill_options(EsOptions *options, std::string *folder, EsError *why);

/** How long the statement may wait for a row lock: WAIT n and NOWAIT, or else esker_lock_wait_timeout. */
uint64_t lock_timeout_us(THD *thd);
bool snapshot_isolation(THD *thd);
uint read_blocks(THD *thd);
/** Whose turn it is to get AUTO_INCREMENT values. */
enum class Autoinc_lock_mode { traditional, consecutive, interleaved };
Autoinc_lock_mode autoinc_lock_mode();
/** esker_trace, of this session. */
enum class Trace_level : ulong;
Trace_level trace_level(THD *thd);
void set_trace_level(THD *thd, Trace_level level);
/** Where traces go. */
std::string trace_folder();
/** A session has begun: is it the user's whom esker_trace_user names? No other one after it is. */
bool is_user_traced(const THD *thd);
}

#endif
