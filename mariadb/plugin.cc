/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  The plugin: opens the engine when the server loads it, closes it when the server lets go.
*/
#include "ha_esker.h"
#include "errors.h"
#include "information_schema.h"
#include "error_log.h"
#include "status.h"
#include "variables.h"
#include <string>

namespace shim
{
handlerton *hton;
es_engine *engine;

namespace
{
/* The engine's side has the same numbers in its tests. */
static_assert(sizeof(es_error) == 1024 && sizeof(es_options) == 72 && sizeof(es_column) == 28 &&
              sizeof(es_layout) == 24 && sizeof(es_table_def) == 40 && sizeof(es_table_stats) == 56 &&
              sizeof(es_wait_hooks) == 32 && sizeof(es_xid) == 144 && sizeof(es_scan_options) == 24 &&
              sizeof(es_batch) == 32 && sizeof(es_stage) == 32 && sizeof(es_transaction) == 232 &&
              sizeof(es_lock_wait) == 64, "the structs of esker.h have other sizes than in Rust");

handler *make_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *root)
{
  return new (root) ha_esker(hton, share);
}

int init(void *plugin_hton)
{
  hton= static_cast<handlerton *>(plugin_hton);
  hton->db_type= DB_TYPE_AUTOASSIGN;
  hton->flags= HTON_NO_FLAGS;
  hton->create= make_handler;
  hton->drop_table= drop_table;
  hton->show_status= show_status;
  hton->table_options= table_options;
  hton->tablefile_extensions= hton_no_exts;
  init_transactions(hton);
  init_xa(hton);

  es_options options;
  std::string folder;
  fill_options(&options, &folder);
  options.log= log_line;
  es_error why;
  es_status status= es_engine_open(&options, &engine, &why);
  if (status == ES_OK)
    return 0;
  sql_print_error("%s: cannot open '%s': %s", product, folder.c_str(), why.text);
  engine= nullptr;
  return 1;
}

/* Also called when init failed. */
int deinit(void *)
{
  if (!engine)
    return 0;
  es_error why;
  es_status status= es_engine_close(engine, &why);
  engine= nullptr;
  if (status != ES_OK)
    sql_print_error("%s: shutdown was not clean: %s", product, why.text);
  return 0;
}

st_mysql_storage_engine storage_engine= {MYSQL_HANDLERTON_INTERFACE_VERSION};
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
}
maria_declare_plugin_end;
