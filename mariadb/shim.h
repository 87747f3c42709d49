/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  What every file of the shim starts from: the server's headers in the order they need, the engine's C face, and the
  two globals, set once in plugin.cc before any table can be opened.
*/
#ifndef ESKER_SHIM_INCLUDED
#define ESKER_SHIM_INCLUDED

#ifndef MYSQL_SERVER
#define MYSQL_SERVER 1
#endif
#include <my_global.h>
#include "sql_class.h"
#include "handler.h"
#include "table.h"
#include "field.h"
#include "key.h"
#include "sql_lex.h"
#include "sql_plugin.h"
#include "log.h"
#include <mysql/plugin.h>
#include <mysql/plugin_audit.h>

#include "esker.h"

namespace shim
{
/** The server's handle of this engine. */
extern handlerton *hton;
/** The engine; null until it is open and after it is closed. */
extern EsEngine *engine;

/**
  The engine for those of whom the server does not know that they use it: the tables of INFORMATION_SCHEMA are plugins of their own,
  which UNINSTALL takes away each by itself. Null if it is not open, or about to close; else it stays open while this lives. Not
  twice in one thread.
*/
class Engine_use
{
public:
  Engine_use();
  ~Engine_use();
  Engine_use(const Engine_use &)= delete;
  Engine_use &operator=(const Engine_use &)= delete;
  operator EsEngine *() const { return engine_; }

private:
  EsEngine *engine_;
};

/** Will an Engine_use most likely have one? Variables of sessions are there by then. */
bool is_open();

/** The engine's name, as ENGINE= and messages have it. */
inline constexpr char product[]= "Esker";
}

#endif
