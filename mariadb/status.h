/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  What can be seen of the engine: status variables Esker_*, SHOW ENGINE ESKER STATUS and MUTEX.
*/
#ifndef ESKER_STATUS_INCLUDED
#define ESKER_STATUS_INCLUDED

#include "shim.h"

namespace shim
{
/** For st_maria_plugin. */
extern st_mysql_show_var status_variables[];

/** handlerton::show_status. */
bool show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type);
}

#endif
