/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  What outlives a connection: prepared transactions by XID, and the binlog's question whether the log is durable.
*/
#include "transaction.h"
#include "errors.h"
#include "error_log.h"

namespace shim
{
EsXid to_es_xid(const XID *xid)
{
  static_assert(ES_XID_DATA_BYTES == XIDDATASIZE && sizeof xid->data == XIDDATASIZE);
  EsXid id= {};
  id.format= xid->formatID;
  id.gtrid_bytes= static_cast<uint32_t>(xid->gtrid_length);
  id.bqual_bytes= static_cast<uint32_t>(xid->bqual_length);
  memcpy(id.data, xid->data, sizeof id.data);
  return id;
}

namespace
{
/* Answers of the X/Open interface. */
constexpr int XA_OK= 0, XAER_NOTA= -4, XAER_RMFAIL= -7;

void from_es_xid(const EsXid &id, XID *xid)
{
  xid->set(static_cast<long>(id.format), reinterpret_cast<const char *>(id.data),
           static_cast<long>(id.gtrid_bytes), reinterpret_cast<const char *>(id.data) + id.gtrid_bytes,
           static_cast<long>(id.bqual_bytes));
}

/*
  The server calls again while it gets its array full, and ends transactions of the list in between: the engine keeps
  the list until it has been handed out whole. Only the server's start calls this, in one thread.
*/
int recover(handlerton *, XID *list, uint capacity)
{
  static bool in_list= false;
  if (!list || capacity == 0)
    return 0;
  uint filled= 0;
  while (filled < capacity)
  {
    EsXid page[16];
    uint32_t count= 0;
    EsError why;
    uint32_t want= static_cast<uint32_t>(std::min<size_t>(array_elements(page), capacity - filled));
    if (es_recover(engine, !in_list, page, want, &count, &why) != EsStatus::Ok)
    {
      sql_print_error("%s: cannot list prepared transactions: %s", product, why.text);
      break;
    }
    in_list= count == want;
    for (uint32_t i= 0; i < count; i++)
      from_es_xid(page[i], &list[filled++]);
    if (!in_list)
      break;
  }
  return static_cast<int>(filled);
}

int end_by_xid(EsStatus (*end)(const EsEngine *, const EsXid *, bool *, EsError *), const XID *xid)
{
  EsXid id= to_es_xid(xid);
  bool found= false;
  EsError why;
  const EsStatus status= end(engine, &id, &found, &why);
  if (status != EsStatus::Ok)
  {
    sql_print_error("%s: cannot end a prepared transaction: %s", product, why.text);
    /* XA COMMIT and XA ROLLBACK look at what was raised alone, and keep the XID then. */
    const THD *thd= current_thd;
    if (thd && (thd->lex->sql_command == SQLCOM_XA_COMMIT || thd->lex->sql_command == SQLCOM_XA_ROLLBACK))
      raise(status, why.text);
    return XAER_RMFAIL;
  }
  return found ? XA_OK : XAER_NOTA;
}

int commit_by_xid(handlerton *, XID *xid)
{
  return end_by_xid(es_commit_xid, xid);
}

int rollback_by_xid(handlerton *, XID *xid)
{
  return end_by_xid(es_rollback_xid, xid);
}

/*
  The binlog asked whether all is durable of which it wants to forget the end, and it is not, nor will it be. Mostly it can
  go on: it keeps what a restart needs. But RESET MASTER waits for the answer, holding the lock that every commit needs,
  and would do so for ever.
*/
void refuse_checkpoint(const char *why)
{
  constexpr time_t most_wait_s= 10;
  sql_print_error("%s: cannot make its log durable: %s. Until a restart the binary log keeps what recovery needs; if RESET"
                  " MASTER waits for this, the server is stopped in %d seconds", product, why,
                  static_cast<int>(most_wait_s));
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec+= most_wait_s;
  mysql_mutex_t *lock= mysql_bin_log.get_log_lock();
  if (pthread_mutex_timedlock(&lock->m_mutex, &until) == 0)
  {
    pthread_mutex_unlock(&lock->m_mutex);
    return;
  }
  sql_print_error("%s: the binary log has waited %d seconds for what cannot become durable, and would stop every commit for"
                  " ever; stopping the server, its restart recovers", product, static_cast<int>(most_wait_s));
  abort();
}

extern "C" void checkpoint_done(void *cookie, EsStatus status, const char *why)
{
  join_server();
  if (status == EsStatus::Ok)
    commit_checkpoint_notify_ha(cookie);
  else
    refuse_checkpoint(why);
}

void commit_checkpoint_request(void *cookie)
{
  es_request_checkpoint(engine, checkpoint_done, cookie);
}

/*
  All connections are down, the logs that know how prepared transactions ended are not closed yet. What they decided has
  to be durable here before: closed in order, they would not be asked any more, and the binlog would wait for ever for an
  answer that was refused.
*/
void pre_shutdown()
{
  EsError why;
  if (!engine || es_flush_log(engine, &why) == EsStatus::Ok)
    return;
  sql_print_error("%s: cannot make its log durable: %s. Ending the server as after a crash, so that its next start recovers",
                  product, why.text);
  abort();
}

bool flush_logs(handlerton *)
{
  EsError why;
  if (es_flush_log(engine, &why) == EsStatus::Ok)
    return false;
  sql_print_error("%s: cannot flush the log: %s", product, why.text);
  return true;
}
}

void init_xa()
{
  hton->recover= recover;
  hton->commit_by_xid= commit_by_xid;
  hton->rollback_by_xid= rollback_by_xid;
  hton->commit_checkpoint_request= commit_checkpoint_request;
  hton->flush_logs= flush_logs;
  hton->pre_shutdown= pre_shutdown;
}
}
