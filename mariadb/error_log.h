/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  The engine's way into the server's error log.
*/
#ifndef ESKER_ERROR_LOG_INCLUDED
#define ESKER_ERROR_LOG_INCLUDED

#include "shim.h"

namespace shim
{
/** EsLogFn: writes one line, marked as Esker's. Called from any thread. */
extern "C" void log_line(void *context, EsLogLevel level, const char *text, size_t length);

/**
  Makes the calling thread one that mysys knows, until it ends. The engine's own threads call into the server with log
  lines and checkpoint answers, and the server's file functions keep errno in per-thread data.
*/
void join_server();
}

#endif
