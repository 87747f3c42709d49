/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  What connections run, and what they wait for, as people see it.
*/
#ifndef ESKER_WAITS_INCLUDED
#define ESKER_WAITS_INCLUDED

#include "shim.h"
#include <string>

namespace shim
{
/** So much of a statement is told. */
constexpr uint text_chars= 512;

/** Of a statement that a connection runs. */
struct Statement
{
  query_id_t id= 0;
  std::string text;
  CHARSET_INFO *charset= system_charset_info;
};

/** Of none if there is no such connection. Locks that connection's own locks. */
Statement statement_of(uint64_t connection);

/** EsWaitHooks::statement. */
extern "C" size_t statement_text(uint64_t connection, uint8_t *text, size_t room);

/** EsOptions::waiting: the State column of SHOW PROCESSLIST. */
extern "C" void waiting(const char *what);
}

#endif
