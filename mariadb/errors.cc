/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Error mapping. Invariant: no status maps to HA_ERR_RECORD_DELETED or HA_ERR_END_OF_FILE, which the server takes for
  "go on" and "done".
*/
#include "errors.h"

namespace shim
{
namespace
{
enum class Rollback { none, statement, transaction };

struct Mapping
{
  EsStatus status;
  int ha_error;
  /* SQL error that carries the engine's words; 0: the server's message for ha_error says it all. */
  uint sql_error;
  Rollback rollback;
};

constexpr Mapping mappings[]=
{
  {EsStatus::Io, HA_ERR_GENERIC, ER_GET_ERRMSG, Rollback::none},
  {EsStatus::DiskFull, HA_ERR_DISK_FULL, ER_DISK_FULL, Rollback::none},
  {EsStatus::Damage, HA_ERR_CRASHED, ER_GET_ERRMSG, Rollback::none},
  {EsStatus::NewerFormat, HA_ERR_NEW_FILE, ER_GET_ERRMSG, Rollback::none},
  {EsStatus::Locked, HA_ERR_INITIALIZATION, ER_GET_ERRMSG, Rollback::none},
  {EsStatus::NoSuchTable, HA_ERR_NO_SUCH_TABLE, 0, Rollback::none},
  {EsStatus::TableExists, HA_ERR_TABLE_EXIST, 0, Rollback::none},
  {EsStatus::TableChanged, HA_ERR_TABLE_DEF_CHANGED, 0, Rollback::none},
  {EsStatus::LockTimeout, HA_ERR_LOCK_WAIT_TIMEOUT, 0, Rollback::statement},
  {EsStatus::WouldBlock, HA_ERR_LOCK_WAIT_TIMEOUT, 0, Rollback::statement},
  {EsStatus::Deadlock, HA_ERR_LOCK_DEADLOCK, 0, Rollback::transaction},
  {EsStatus::Interrupted, HA_ERR_ABORTED_BY_USER, 0, Rollback::none},
  {EsStatus::RecordChanged, HA_ERR_RECORD_CHANGED, 0, Rollback::transaction},
  {EsStatus::RowNotFound, HA_ERR_KEY_NOT_FOUND, 0, Rollback::none},
  {EsStatus::RowTooLong, HA_ERR_TO_BIG_ROW, ER_TOO_BIG_ROWSIZE, Rollback::none},
  {EsStatus::ReadOnly, HA_ERR_TABLE_READONLY, ER_GET_ERRMSG, Rollback::none},
  {EsStatus::Poisoned, HA_ERR_GENERIC, ER_GET_ERRMSG, Rollback::none},
  {EsStatus::OutOfMemory, HA_ERR_OUT_OF_MEM, ER_GET_ERRMSG, Rollback::none},
  {EsStatus::Unsupported, HA_ERR_UNSUPPORTED, ER_GET_ERRMSG, Rollback::none},
  {EsStatus::Invalid, HA_ERR_INTERNAL_ERROR, ER_GET_ERRMSG, Rollback::none},
  {EsStatus::Layout, HA_ERR_INCOMPATIBLE_DEFINITION, ER_GET_ERRMSG, Rollback::none},
  {EsStatus::DuplicateKey, HA_ERR_FOUND_DUPP_KEY, 0, Rollback::none},
  {EsStatus::Panic, HA_ERR_INTERNAL_ERROR, ER_GET_ERRMSG, Rollback::none},
};

static_assert(array_elements(mappings) == static_cast<size_t>(EsStatus::Other) - 1,
              "every status but Ok and Other has its line");

constexpr Mapping unknown= {EsStatus::Other, HA_ERR_GENERIC, ER_GET_ERRMSG, Rollback::none};

const Mapping &find(EsStatus status)
{
  for (const Mapping &mapping : mappings)
    if (mapping.status == status)
      return mapping;
  return unknown;
}
}

int ha_error(EsStatus status)
{
  return status == EsStatus::Ok ? 0 : find(status).ha_error;
}

int ha_error(THD *thd, EsStatus status)
{
  if (status == EsStatus::Ok)
    return 0;
  const Mapping &mapping= find(status);
  if (thd && mapping.rollback != Rollback::none)
    thd->mark_transaction_to_rollback(mapping.rollback == Rollback::transaction);
  return mapping.ha_error;
}

bool has_detail(EsStatus status)
{
  return status != EsStatus::Ok && find(status).sql_error != 0;
}

void raise(EsStatus status, const char *text, myf flags)
{
  const Mapping &mapping= find(status);
  if (mapping.sql_error == 0)
    return;
  if (mapping.sql_error == ER_GET_ERRMSG)
    my_printf_error(ER_GET_ERRMSG, "Got error %d '%s' from %s", flags, mapping.ha_error, text, product);
  else
    my_printf_error(mapping.sql_error, "%s: %s", flags, product, text);
}

bool raise_plain(EsStatus status)
{
  uint number;
  switch (status) {
  case EsStatus::LockTimeout:
  case EsStatus::WouldBlock:
    number= ER_LOCK_WAIT_TIMEOUT;
    break;
  case EsStatus::Deadlock:
    number= ER_LOCK_DEADLOCK;
    break;
  case EsStatus::Interrupted:
    number= ER_QUERY_INTERRUPTED;
    break;
  case EsStatus::TableChanged:
    number= ER_TABLE_DEF_CHANGED;
    break;
  default:
    return false;
  }
  my_error(number, MYF(0));
  return true;
}

void raise_left_over(const char *text)
{
  my_printf_error(ER_TABLE_EXISTS_ERROR, "%s, and the server does not know it: DROP TABLE removes it, once nothing else has its name",
                  MYF(0), text);
}

int raise_last(THD *thd, const EsSession *session)
{
  EsError why;
  EsStatus status= es_last_error(session, &why);
  if (has_detail(status))
    raise(status, why.text);
  return ha_error(thd, status);
}
}
