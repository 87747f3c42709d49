/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Transactions: begin, the two kinds of end, prepare, savepoints, consistent snapshots, KILL.

  Order at a commit with the binlog: prepare (durable, this thread), commit_ordered (its place in the order,
  and in every view opened from then on; the binlog leader's thread), commit (carries that out, and cleans up). Without:
  commit does it all.
*/
#include "transaction.h"
#include "errors.h"
#include "variables.h"
#include "waits.h"
#include "slave.h"
#include "rpl_rli.h"
#include <new>

/* Exported by the server for engines, declared in none of its headers. */
extern "C" int thd_need_wait_reports(const MYSQL_THD thd);
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other);
extern "C" int thd_deadlock_victim_preference(const MYSQL_THD one, const MYSQL_THD other);

namespace shim
{
namespace
{
/* Of the statement that waits: one of a routine or a trigger may have another limit than the one around it (SET STATEMENT). */
extern "C" uint64_t longest_wait(void *thd)
{
  return lock_timeout_us(static_cast<THD *>(thd));
}

extern "C" void before_wait(void *context)
{
  THD *thd= static_cast<THD *>(context);
  /* While the server reads tables of its own for a statement no KILL of it is told here (start_new_trans). */
  if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
    Connection::find(thd)->kill();
  thd_wait_begin(thd, THD_WAIT_ROW_LOCK);
}

extern "C" void after_wait(void *thd, uint64_t waited_us)
{
  thd_wait_end(static_cast<THD *>(thd));
  thd_storage_lock_wait(static_cast<THD *>(thd), static_cast<long long>(waited_us));
}

/*
  Parallel replication commits in the master's order: a transaction that waits here for a later one would wait for ever.
  The server kills the later one, from a thread of its own, and runs it again.
*/
extern "C" void waits_for(void *thd, void *other)
{
  thd_rpl_deadlock_check(static_cast<THD *>(thd), static_cast<THD *>(other));
}

/* Whom a deadlock would refuse in vain: the later one waits for its commit all the same. */
extern "C" bool goes_before(void *one, void *other)
{
  return thd_deadlock_victim_preference(static_cast<THD *>(one), static_cast<THD *>(other)) > 0;
}
}

Connection::~Connection()
{
  delete trace;
  want_trace(false);
  es_killer_close(killer_);
  es_session_close(session_);
}

Connection *Connection::open(THD *thd, int *error)
{
  Connection *connection= new (std::nothrow) Connection;
  if (!connection)
  {
    *error= HA_ERR_OUT_OF_MEM;
    return nullptr;
  }
  EsWaitHooks hooks= {thd, before_wait, longest_wait, after_wait, waits_for, goes_before, statement_text};
  EsError why;
  EsStatus status= es_session_open(engine, &hooks, &connection->session_, &why);
  if (status == EsStatus::Ok && (status= es_killer_open(connection->session_, &connection->killer_)) != EsStatus::Ok)
    (void) es_last_error(connection->session_, &why);
  if (status != EsStatus::Ok)
  {
    raise(status, why.text);
    *error= ha_error(status);
    delete connection;
    return nullptr;
  }
  es_set_connection(connection->session_, thd_get_thread_id(thd));
  connection->stage_= es_session_stage(connection->session_);
  thd_set_ha_data(thd, hton, connection);
  /* Whose plugin goes already: nobody would close it, nor keep the plugin until that is done. */
  if (!thd->ha_data[hton->slot].lock)
  {
    close(thd);
    *error= HA_ERR_INITIALIZATION;
    return nullptr;
  }
  return connection;
}

EsStatus Connection::await_log()
{
  const uint64_t end= log_end_;
  log_end_= 0;
  return end ? es_await_log(session_, end) : EsStatus::Ok;
}

void Connection::close(THD *thd)
{
  Connection *connection= find(thd);
  /* Takes LOCK_thd_data, which KILL holds while it uses the killer. */
  thd_set_ha_data(thd, hton, nullptr);
  delete connection;
}

namespace
{
/* Statements that hold others out by a metadata lock, or read what is there by design, are serializable as they are. */
bool needs_no_serializability(const THD *thd)
{
  switch (thd_sql_command(thd)) {
  case SQLCOM_CREATE_TABLE:
    /* A temporary table that is filled by a SELECT ends no transaction. */
    return !thd->lex->tmp_table() ||
           !(thd->lex->first_select_lex()->item_list.elements || thd->lex->first_select_lex()->tvc);
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_DROP_TABLE:
  case SQLCOM_RENAME_TABLE:
  case SQLCOM_TRUNCATE:
  case SQLCOM_ANALYZE:
  case SQLCOM_CHECK:
  case SQLCOM_CHECKSUM:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_FLUSH:
  case SQLCOM_SHOW_FIELDS:
  case SQLCOM_SHOW_CREATE:
    return true;
  default:
    return false;
  }
}
}

int Connection::begin(THD *thd)
{
  /* However the statement comes in: external_lock, start_stmt, or neither. */
  if (thd_tx_isolation(thd) == ISO_SERIALIZABLE && !needs_no_serializability(thd))
  {
    my_printf_error(ER_NOT_SUPPORTED_YET, "%s does not support the isolation level SERIALIZABLE yet; use REPEATABLE"
                    " READ or READ COMMITTED", MYF(0), product);
    return HA_ERR_UNSUPPORTED;
  }
  EsStatus status= EsStatus::Ok;
  if (!es_in_transaction(session_))
  {
    const EsIsolation isolation=
      thd_tx_isolation(thd) <= ISO_READ_COMMITTED ? EsIsolation::ReadCommitted : EsIsolation::RepeatableRead;
    /* The server asks for reports of everybody as long as there is a binlog; of most the first one tells all that it keeps. */
    const bool changes= (thd->rgi_slave && thd->rgi_slave->is_parallel_exec) || opt_binlog_commit_wait_count;
    es_report_waits(session_, thd_need_wait_reports(thd) != 0, changes);
    status= es_begin(session_, isolation, snapshot_isolation(thd));
  }
  killed_= false;
  if (status == EsStatus::Ok)
    status= es_begin_statement(session_);
  if (status != EsStatus::Ok)
    return raise_last(thd, session_);
  es_set_read_blocks(session_, read_blocks(thd));
  statement_= true;
  failed_= EsStatus::Ok;
  /* A KILL that came before the statement began was meant for it. */
  if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
    kill();
  return 0;
}

/*
  Would a replica's worker that is ahead of its turn pass over rows that it does not find, or finds twice? Those of transactions
  that their primary committed together (slave_parallel_mode=conservative) do not meet the rows of each other.
*/
static bool passes_over_rows_ahead(const THD *thd)
{
  return (slave_exec_mode_options == SLAVE_EXEC_MODE_IDEMPOTENT || use_slave_mask) && thd->rgi_slave &&
         thd->rgi_slave->speculation == rpl_group_info::SPECULATE_OPTIMISTIC;
}

/*
  A statement of the binlog, or of a trigger of the replica's, that a worker applies ahead of its turn would choose its rows among
  those of now: there are no gap locks, nor locks on rows that do not match, by which a transaction ahead of it would be found to
  have changed them afterwards. So it begins when its turn comes. So do rows of the binlog, where one that is not there yet would
  be taken for one that is gone: otherwise that is an error, after which the transaction is run again in its turn. And rows that have
  triggers: by the time of a trigger's statement the server has locked all tables, and a transaction ahead may wait for one of them.
*/
static int await_turn(THD *thd)
{
  wait_for_commit *order= thd->wait_for_commit_ptr;
  const bool is_rows= thd->lex->sql_command == SQLCOM_END && !thd->lex->requires_prelocking();
  if (!order || (is_rows && !passes_over_rows_ahead(thd)))
    return 0;
  return order->wait_for_prior_commit(thd);
}

/*
  XA PREPARE asks who takes part in the order in which the last one to come is the first, and the binlog writes then and there: what has
  been written there is not taken back where an engine cannot prepare. So it comes before.
*/
static void let_binlog_prepare_last(THD *thd)
{
  if (!thd->transaction->xid_state.is_explicit_XA() || !mysql_bin_log.is_open() || thd->is_current_stmt_binlog_disabled() ||
      thd->ha_data[binlog_hton->slot].ha_info[1].is_started() || thd->ha_data[hton->slot].ha_info[1].is_started())
    return;
  if (thd->binlog_setup_trx_data())
    trans_register_ha(thd, true, binlog_hton, 0);
}

/*
  A replica's worker commits in the master's order. Where the binlog gets nothing of its transaction the first engine to commit would wake
  the next transaction: an engine that has only read, too, before another one has committed what it has written. Nobody is woken
  before the event group is finished, which does it (finish_event_group).
*/
static void keep_others_waiting(THD *thd)
{
  wait_for_commit *order= thd->wait_for_commit_ptr;
  if (order && (!mysql_bin_log.is_open() || thd->is_current_stmt_binlog_disabled()))
    order->wakeup_blocked= true;
}

Connection *Connection::enter(THD *thd, int *error, bool in_turn)
{
  Trace::begin_if_wanted(thd);
  if (in_turn && (*error= await_turn(thd)))
    return nullptr;
  Connection *connection= find(thd);
  if (!connection && !(connection= open(thd, error)))
    return nullptr;
  if (!connection->statement_ && (*error= connection->begin(thd)))
    return nullptr;
  keep_others_waiting(thd);
  let_binlog_prepare_last(thd);
  trans_register_ha(thd, false, hton, 0);
  if (thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN))
    trans_register_ha(thd, true, hton, 0);
  return connection;
}

bool copies_table(THD *thd)
{
  switch (thd_sql_command(thd)) {
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR:
    return true;
  default:
    return false;
  }
}

namespace
{
int close_connection(handlerton *, THD *thd)
{
  Connection::close(thd);
  return 0;
}

/* Runs in the killer's thread, which holds the victim's LOCK_thd_data. */
void kill_query(handlerton *, THD *thd, enum thd_kill_levels)
{
  if (Connection *connection= Connection::find(thd))
    connection->kill();
}

/*
  What cannot be kept of a statement now fails all of its transaction: the binlog's cache has its rows already, and goes back for no
  error that comes so late.
*/
int end_statement(THD *thd, Connection *connection)
{
  if (!connection->in_statement())
    return 0;
  connection->statement_ended();
  return es_end_statement(connection->session()) == EsStatus::Ok ? 0 : raise_last(thd, connection->session());
}

/* Has the binlog rows, or a statement, of this transaction? It has none of a database that it leaves out, nor of rows that stay as they are. */
bool binlog_takes_part(const THD *thd)
{
  const Ha_trx_info *of= thd->ha_data[binlog_hton->slot].ha_info;
  return mysql_bin_log.is_open() && (of[0].is_started() || of[1].is_started());
}

/* As keep_others_waiting, once it is known what the binlog has; false: it keeps the order. */
bool let_others_wait_for_all(THD *thd)
{
  wait_for_commit *order= thd->wait_for_commit_ptr;
  if (!order || !opt_bin_log || binlog_takes_part(thd))
    return false;
  order->wakeup_blocked= true;
  return true;
}

/*
  A replica's worker commits in the master's order. Where two engines take part (a table here, mysql.gtid_slave_pos in
  another) and the binlog gets nothing of the transaction (no log_slave_updates, say), the coordinator of MariaDB
  10.11 neither waits for the transactions before nor calls commit_ordered (binlog_flush_cache finds nothing to write).
  Then a transaction's position is told, and can be durable, before those ahead of it are committed. So the order is kept
  here: wait before preparing, and wake nobody before the event group is finished. Where one engine alone has written the server waits.
*/
int keep_replicated_order(THD *thd)
{
  return let_others_wait_for_all(thd) ? thd->wait_for_commit_ptr->wait_for_prior_commit(thd) : 0;
}

int prepare(handlerton *, THD *thd, bool all)
{
  Connection *connection= Connection::find(thd);
  if (!connection || !ends_transaction(thd, all))
    return 0;
  if (int error= keep_replicated_order(thd))
    return error;
  XID server_xid= *thd->get_xid();
  EsXid xid= to_es_xid(&server_xid);
  connection->external= !server_xid.get_my_xid();
  const bool in_turn= connection->external || thd->wait_for_commit_ptr;
  const Traced_call traced;
  if (es_prepare(connection->session(), &xid, in_turn) != EsStatus::Ok || connection->await_log() != EsStatus::Ok)
    return raise_last(thd, connection->session());
  if (!connection->external && Trace::any())
    es_trace_binlog();
  return 0;
}

/*
  The server asks this of who takes part before it commits, with that lock held, and where it alters a table, for another end. Where an engine takes part that cannot prepare
  (Aria, for a table that is only read, too) nobody is asked to, and the binlog is written first: what can fail in a commit must
  have gone well by then.
*/
ulonglong prepare_beside_one_that_cannot(THD *thd, ulonglong *)
{
  let_others_wait_for_all(thd);
  const THD_TRANS &all= thd->transaction->all, &ending= all.ha_list ? all : thd->transaction->stmt;
  if (!ending.no_2pc || !thd->backup_commit_lock || !mysql_bin_log.is_open() ||
      thd->transaction->xid_state.is_explicit_XA())
    return 0;
  return prepare(hton, thd, true) ? ULONGLONG_MAX : 0;
}

/*
  Runs in whatever thread leads the group commit, with LOCK_commit_ordered held: no my_error, no waiting. The binlog has
  the transaction already, so going on without it would lose it.
*/
void commit_ordered(handlerton *, THD *thd, bool)
{
  Connection *connection= Connection::find(thd);
  if (!connection || !es_in_transaction(connection->session()))
    return;
  if (es_commit_ordered(connection->session()) != EsStatus::Ok)
  {
    EsError why;
    (void) es_last_error(connection->session(), &why);
    sql_print_error("%s: cannot commit a transaction that is in the binary log (%s); stopping the server, its restart"
                    " recovers", product, why.text);
    abort();
  }
  connection->ordered= true;
}

/* The server will say durably that a copy is complete, whatever commits wait for, and from then on its recovery drops the original. */
static int flush_copy(THD *thd)
{
  EsError why;
  const EsStatus status= es_flush_log(engine, &why);
  if (status == EsStatus::Ok)
    return 0;
  raise(status, why.text);
  return ha_error(thd, status);
}

int commit_it(THD *thd, bool all)
{
  Connection *connection= Connection::find(thd);
  if (!connection)
    return 0;
  const Traced_call traced;
  if (!ends_transaction(thd, all))
    return end_statement(thd, connection);
  connection->statement_ended();
  /* Order and visibility are settled: who waits for this commit may go on while it finishes. */
  bool ordered= connection->ordered;
  connection->ordered= false;
  if (ordered)
    thd_wakeup_subsequent_commits(thd, 0);
  EsStatus status= es_commit(connection->session());
  /*
    What is acknowledged has to be durable as decided where the server's recovery does not decide it so:
    - without the binlog another engine takes part by tc.log, and the recovery of MariaDB 10.11 rolls back whatever it
      then finds prepared, decided or not (xarecover_handlerton asks the list of commits for the binlog only);
    - XA COMMIT ... ONE PHASE prepares with the user's XID, which no recovery looks for in the binlog.
  */
  if (status == EsStatus::Ok && ordered && (connection->external || !mysql_bin_log.is_open()))
    status= es_await_whole_log(connection->session());
  if (status == EsStatus::Ok)
    status= connection->await_log();
  if (status != EsStatus::Ok)
  {
    int error= raise_last(thd, connection->session());
    if (es_in_transaction(connection->session()))
      (void) es_rollback(connection->session());
    return error;
  }
  if (!ordered)
    thd_wakeup_subsequent_commits(thd, 0);
  return copies_table(thd) ? flush_copy(thd) : 0;
}

/*
  A DELETE that is killed while it is planned finds no way to its rows, which mysql_delete() takes for no rows: it says that all went
  well, and the server forgets the kill. UPDATE asks for it.
*/
bool is_told_of_no_kill(THD *thd)
{
  if (likely(thd->lex->sql_command != SQLCOM_DELETE) || thd->in_sub_stmt)
    return false;
  const Connection *connection= Connection::find(thd);
  const Diagnostics_area *answer= thd->get_stmt_da();
  return connection && connection->was_killed() && answer->is_ok() && !answer->affected_rows();
}

int commit(handlerton *, THD *thd, bool all)
{
  es_trace_binlog_end();
  const bool tells_of_kill= is_told_of_no_kill(thd);
  const int error= commit_it(thd, all);
  if (unlikely(tells_of_kill) && !error)
    my_error(ER_QUERY_INTERRUPTED, MYF(0));
  Trace::statement_committed(thd);
  return error;
}

int roll_back(THD *thd, bool all)
{
  Connection *connection= Connection::find(thd);
  if (!connection)
    return 0;
  const Traced_call traced;
  bool marked= connection->in_statement();
  connection->statement_ended();
  connection->ordered= false;
  EsStatus status= EsStatus::Ok;
  if (ends_transaction(thd, all))
  {
    status= es_rollback(connection->session());
    if (status == EsStatus::Ok)
      status= connection->await_log();
  }
  else if (marked)
    status= es_rollback_statement(connection->session());
  return status == EsStatus::Ok ? 0 : raise_last(thd, connection->session());
}

int rollback(handlerton *, THD *thd, bool all)
{
  es_trace_binlog_end();
  const int error= roll_back(thd, all);
  Trace::statement_committed(thd);
  return error;
}

int savepoint_set(handlerton *, THD *thd, void *place)
{
  Connection *connection= Connection::find(thd);
  uint64_t savepoint;
  if (!connection)
    return HA_ERR_NO_SAVEPOINT;
  if (es_savepoint(connection->session(), &savepoint) != EsStatus::Ok)
    return raise_last(thd, connection->session());
  memcpy(place, &savepoint, sizeof savepoint);
  return 0;
}

int savepoint_rollback(handlerton *, THD *thd, void *place)
{
  Connection *connection= Connection::find(thd);
  uint64_t savepoint;
  memcpy(&savepoint, place, sizeof savepoint);
  if (!connection)
    return HA_ERR_NO_SAVEPOINT;
  return es_rollback_to(connection->session(), savepoint) == EsStatus::Ok ? 0 : raise_last(thd, connection->session());
}

int savepoint_release(handlerton *, THD *thd, void *place)
{
  Connection *connection= Connection::find(thd);
  uint64_t savepoint;
  memcpy(&savepoint, place, sizeof savepoint);
  if (!connection)
    return HA_ERR_NO_SAVEPOINT;
  es_release_savepoint(connection->session(), savepoint);
  return 0;
}

/*
  May the metadata locks taken since a savepoint go when it is rolled back to? Row locks stay until the end, and so must
  the tables they are in. Asked of every engine of the transaction: one that does not answer keeps the locks of all.
*/
bool savepoint_rollback_can_release_mdl(handlerton *, THD *thd)
{
  const Connection *connection= Connection::find(thd);
  return !connection || !es_holds_locks(connection->session());
}

/* Called for every engine: what Esker cannot do must not fail another engine's snapshot. */
int start_consistent_snapshot(handlerton *, THD *thd)
{
  if (thd_tx_isolation(thd) != ISO_REPEATABLE_READ)
    return 0;
  int error= 0;
  Connection *connection= Connection::enter(thd, &error);
  if (!connection || es_take_view(connection->session()) != EsStatus::Ok)
  {
    /* An engine that refuses this refuses reads too: nothing is read without the snapshot. */
    thd->clear_error();
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG,
                        "%s takes no part in the consistent snapshot: see the error log", product);
  }
  return 0;
}
}

void init_transactions()
{
  hton->close_connection= close_connection;
  hton->kill_query= kill_query;
  hton->prepare= prepare;
  hton->prepare_commit_versioned= prepare_beside_one_that_cannot;
  hton->commit_ordered= commit_ordered;
  hton->commit= commit;
  hton->rollback= rollback;
  hton->savepoint_offset= sizeof(uint64_t);
  hton->savepoint_set= savepoint_set;
  hton->savepoint_rollback= savepoint_rollback;
  hton->savepoint_release= savepoint_release;
  hton->savepoint_rollback_can_release_mdl= savepoint_rollback_can_release_mdl;
  hton->start_consistent_snapshot= start_consistent_snapshot;
}
}
