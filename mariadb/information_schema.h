/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  The tables of INFORMATION_SCHEMA, for st_maria_plugin.
*/
#ifndef ESKER_INFORMATION_SCHEMA_INCLUDED
#define ESKER_INFORMATION_SCHEMA_INCLUDED

#include "shim.h"

namespace shim
{
extern st_mysql_information_schema information_schema;
int init_trx_table(void *schema);
int init_lock_waits_table(void *schema);
int init_locks_table(void *schema);
int init_metrics_table(void *schema);
int init_files_table(void *schema);
int init_memory_table(void *schema);
int init_waits_table(void *schema);
int init_wait_hist_table(void *schema);
int init_table_stats_table(void *schema);
int init_mutexes_table(void *schema);
int init_mutex_stacks_table(void *schema);
}

#endif
