/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  A connection's side of the engine: its session, and how the server's statements and transactions begin in it.
*/
#ifndef ESKER_TRANSACTION_INCLUDED
#define ESKER_TRANSACTION_INCLUDED

#include "shim.h"
#include "trace.h"
#include <atomic>

namespace shim
{
/**
  What a THD's ha_data points to: made at the connection's first use of the engine, freed by close_connection.

  The session is used by the THD's own thread; by the binlog's leader in commit_ordered, while the owner waits; and by
  KILL through the killer only.
*/
class Connection
{
public:
  /** The THD's connection, or null if it never used the engine. */
  static Connection *find(const THD *thd)
  {
    return static_cast<Connection *>(thd_get_ha_data(thd, hton));
  }

  /**
    Makes sure that a transaction and a statement are open in the engine and that the server knows it takes part in
    both. Null: it failed and *error is the HA_ERR_*; the words have been raised. in_turn: a replica's worker waits for its
    turn first, where its statement needs that.
  */
  static Connection *enter(THD *thd, int *error, bool in_turn= true);

  /** As enter, but an open statement is left as it is. */
  static Connection *of_statement(THD *thd, int *error)
  {
    Connection *connection= find(thd);
    return connection && connection->statement_ ? connection : enter(thd, error);
  }

  /** A new one. Null: as for enter. */
  static Connection *open(THD *thd, int *error);

  /** close_connection: rolls back what is open, leaves what is prepared, frees. */
  static void close(THD *thd);

  EsSession *session() const { return session_; }
  /** Where rows that come in bulk are written without a call each. */
  EsStage *stage() const { return stage_; }
  /** Before a table is closed: what was written for it is taken. */
  void leave_stage(const EsTable *table)
  {
    /* A failure stays with the transaction, which cannot be committed then. */
    if (stage_->table == table)
      (void) es_unstage(session_);
  }
  /** By any thread that holds the THD's LOCK_thd_data, or its own. */
  void kill()
  {
    killed_= true;
    es_kill(killer_);
  }
  /** Since the statement began, which may have told nobody. */
  bool was_killed() const { return killed_; }

  bool in_statement() const { return statement_; }
  /** The statement's mark in the engine was set or cleared by a commit or rollback. */
  void statement_ended()
  {
    statement_= false;
    failed_= EsStatus::Ok;
  }

  /** A sequence's value was committed by itself: the end of this transaction waits for the log up to there. */
  void note_log_end(uint64_t end) { log_end_= end > log_end_ ? end : log_end_; }
  EsStatus await_log();

  /** A call of this statement failed: its words are the session's last. */
  void note_failure(EsStatus status) { failed_= status; }
  /** EsStatus::Ok: what words the session has are of an older statement. */
  EsStatus failed() const { return failed_; }

  /** commit_ordered ran for the transaction that is being committed. */
  bool ordered= false;
  /** It was prepared with an XID of the user's, whose end no restart takes from the binlog. */
  bool external= false;
  /** The session's trace, if it is traced. */
  Trace *trace= nullptr;
  /** Somebody else has asked for it by esker_trace_user: it lasts as long as the session. */
  bool is_trace_wanted() const { return trace_wanted_; }
  void want_trace(bool wanted)
  {
    Trace::count+= uint{wanted} - uint{trace_wanted_};
    trace_wanted_= wanted;
  }
  /* The partitioned table of which a partition with several rows was emptied by this statement. */
  const TABLE *full_delete_of= nullptr;

private:
  Connection()= default;
  ~Connection();
  int begin(THD *thd);

  EsSession *session_= nullptr;
  EsStage *stage_= nullptr;
  EsKiller *killer_= nullptr;
  std::atomic<bool> killed_{false};
  uint64_t log_end_= 0;
  EsStatus failed_= EsStatus::Ok;
  /* Does the server know of us in this statement, and is it marked in the engine? Both or none. */
  bool statement_= false;
  bool trace_wanted_= false;
};

/** Fills in the transaction part of the handlerton. */
void init_transactions();
/** Fills in XA recovery and checkpoints. */
void init_xa();

/** The server's transaction id as the engine takes it. */
EsXid to_es_xid(const XID *xid);

/** Does the statement put a copy in a table's place, which it fills in a transaction of its own? */
bool copies_table(THD *thd);

/** Is it the end of a transaction, not only of a statement in it? */
inline bool ends_transaction(const THD *thd, bool all)
{
  return all || !thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
}
}

#endif
