/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  The plugin: opens the engine when the server loads it, closes it when the server lets go.
*/
#include "ha_esker.h"
#include "collations.h"
#include "errors.h"
#include "information_schema.h"
#include "waits.h"
#include "error_log.h"
#include "status.h"
#include "trace.h"
#include "variables.h"
#include <atomic>
#include <shared_mutex>
#include <string>

namespace shim
{
handlerton *hton;
EsEngine *engine;

namespace
{
/* Held shared by who uses the engine without the server's knowledge, alone by who takes it away from under them. */
std::shared_mutex in_use;
/* Else no more begin: who takes it away would wait for ever for those who come again and again. */
std::atomic<bool> available{false};

handler *make_handler(handlerton *of, TABLE_SHARE *share, MEM_ROOT *root)
{
  return new (root) ha_esker(of, share);
}

void fill()
{
  hton->db_type= DB_TYPE_AUTOASSIGN;
  hton->drop_table= drop_table;
  hton->drop_database= drop_database;
  hton->check_version= check_version;
  hton->show_status= show_status;
  hton->table_options= table_options;
  hton->tablefile_extensions= hton_no_exts;
  init_transactions();
  init_xa();
  hton->create= make_handler;
  hton->flags= HTON_NO_FLAGS;
}

int init(void *plugin_hton)
{
  hton= static_cast<handlerton *>(plugin_hton);
  /*
    The server lets statements find an engine while its plugin is being initialised, which takes as long as recovery does.
    Until it is open they are told that there is none.
  */
  hton->flags= HTON_NOT_USER_SELECTABLE;
  EsOptions options;
  std::string folder;
  EsError why;
  if (!fill_options(&options, &folder, &why))
  {
    sql_print_error("%s: %s", product, why.text);
    return 1;
  }
  options.log= log_line;
  options.weights= weights_of;
  options.weights_version= weights_version;
  options.collation_text= collation_text;
  options.waiting= waiting;
  EsEngine *opened= nullptr;
  EsStatus status= es_engine_open(&options, &opened, &why);
  if (status != EsStatus::Ok)
  {
    sql_print_error("%s: cannot open '%s': %s", product, folder.c_str(), why.text);
    return 1;
  }
  {
    const std::unique_lock<std::shared_mutex> alone(in_use);
    engine= opened;
    available= true;
  }
  fill();
  return 0;
}

/* Also called when init failed. */
int deinit(void *)
{
  available= false;
  const std::unique_lock<std::shared_mutex> alone(in_use);
  if (!engine)
    return 0;
  /* The server finds the plugin by its name for some time after this. */
  hton->flags= HTON_NOT_USER_SELECTABLE;
  EsError why;
  EsStatus status= es_engine_close(engine, &why);
  engine= nullptr;
  if (status != EsStatus::Ok)
    sql_print_error("%s: shutdown was not clean: %s", product, why.text);
  return 0;
}

st_mysql_storage_engine storage_engine= {MYSQL_HANDLERTON_INTERFACE_VERSION};
}

Engine_use::Engine_use() : engine_(nullptr)
{
  if (!available)
    return;
  in_use.lock_shared();
  /* What a connection has of an engine lies under its slot, which that gets once its plugin is initialised. */
  engine_= engine && hton->slot != HA_SLOT_UNDEF ? engine : nullptr;
  if (!engine_)
    in_use.unlock_shared();
}

bool is_open()
{
  return available.load(std::memory_order_relaxed);
}

Engine_use::~Engine_use()
{
  if (engine_)
    in_use.unlock_shared();
}
}

maria_declare_plugin(esker)
{
  MYSQL_STORAGE_ENGINE_PLUGIN,
  &shim::storage_engine,
  shim::product,
  "The Esker project",
  "Transactional tables that load and scan fast and recover at once",
  PLUGIN_LICENSE_GPL,
  shim::init,
  shim::deinit,
  0x0001,
  shim::status_variables,
  shim::system_variables,
  "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
},
{
  MYSQL_INFORMATION_SCHEMA_PLUGIN,
  &shim::information_schema,
  "ESKER_TRX",
  "The Esker project",
  "Open transactions of Esker",
  PLUGIN_LICENSE_GPL,
  shim::init_trx_table,
  nullptr,
  0x0001,
  nullptr,
  nullptr,
  "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
},
{
  MYSQL_INFORMATION_SCHEMA_PLUGIN,
  &shim::information_schema,
  "ESKER_LOCK_WAITS",
  "The Esker project",
  "Who waits for whose locks in Esker",
  PLUGIN_LICENSE_GPL,
  shim::init_lock_waits_table,
  nullptr,
  0x0001,
  nullptr,
  nullptr,
  "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
},
{
  MYSQL_INFORMATION_SCHEMA_PLUGIN,
  &shim::information_schema,
  "ESKER_LOCKS",
  "The Esker project",
  "Who has locked what in Esker, and who wants it",
  PLUGIN_LICENSE_GPL,
  shim::init_locks_table,
  nullptr,
  0x0001,
  nullptr,
  nullptr,
  "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
},
{
  MYSQL_INFORMATION_SCHEMA_PLUGIN,
  &shim::information_schema,
  "ESKER_METRICS",
  "The Esker project",
  "Esker's status variables, with what they mean",
  PLUGIN_LICENSE_GPL,
  shim::init_metrics_table,
  nullptr,
  0x0001,
  nullptr,
  nullptr,
  "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
},
{
  MYSQL_INFORMATION_SCHEMA_PLUGIN,
  &shim::information_schema,
  "ESKER_FILES",
  "The Esker project",
  "Files of Esker, and what was done to them",
  PLUGIN_LICENSE_GPL,
  shim::init_files_table,
  nullptr,
  0x0001,
  nullptr,
  nullptr,
  "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
},
{
  MYSQL_INFORMATION_SCHEMA_PLUGIN,
  &shim::information_schema,
  "ESKER_MEMORY",
  "The Esker project",
  "Whose memory it is in Esker",
  PLUGIN_LICENSE_GPL,
  shim::init_memory_table,
  nullptr,
  0x0001,
  nullptr,
  nullptr,
  "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
},
{
  MYSQL_INFORMATION_SCHEMA_PLUGIN,
  &shim::information_schema,
  "ESKER_WAITS",
  "The Esker project",
  "What was waited for in Esker",
  PLUGIN_LICENSE_GPL,
  shim::init_waits_table,
  nullptr,
  0x0001,
  nullptr,
  nullptr,
  "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
},
{
  MYSQL_INFORMATION_SCHEMA_PLUGIN,
  &shim::information_schema,
  "ESKER_WAIT_HIST",
  "The Esker project",
  "How long waits in Esker took",
  PLUGIN_LICENSE_GPL,
  shim::init_wait_hist_table,
  nullptr,
  0x0001,
  nullptr,
  nullptr,
  "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
},
{
  MYSQL_INFORMATION_SCHEMA_PLUGIN,
  &shim::information_schema,
  "ESKER_TABLE_STATS",
  "The Esker project",
  "What was done to each table of Esker, and by each index",
  PLUGIN_LICENSE_GPL,
  shim::init_table_stats_table,
  nullptr,
  0x0001,
  nullptr,
  nullptr,
  "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
},
{
  MYSQL_INFORMATION_SCHEMA_PLUGIN,
  &shim::information_schema,
  "ESKER_MUTEXES",
  "The Esker project",
  "Esker's own locks",
  PLUGIN_LICENSE_GPL,
  shim::init_mutexes_table,
  nullptr,
  0x0001,
  nullptr,
  nullptr,
  "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
},
{
  MYSQL_INFORMATION_SCHEMA_PLUGIN,
  &shim::information_schema,
  "ESKER_MUTEX_STACKS",
  "The Esker project",
  "Code that waited for Esker's own locks, and that held them",
  PLUGIN_LICENSE_GPL,
  shim::init_mutex_stacks_table,
  nullptr,
  0x0001,
  nullptr,
  nullptr,
  "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
},
{
  MYSQL_AUDIT_PLUGIN,
  &shim::statements,
  "ESKER_STATEMENTS",
  "The Esker project",
  "Statements' begin, text and end for traces of Esker's sessions",
  PLUGIN_LICENSE_GPL,
  shim::init_statements,
  shim::deinit_statements,
  0x0001,
  nullptr,
  nullptr,
  "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
}
maria_declare_plugin_end;
