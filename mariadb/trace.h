/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Session traces: what a traced session does, in a file of its own (esker_trace, docs/TRACE.md).

  A statement begins and ends as the audit plugin ESKER_STATEMENTS hears it from the server. One that the plugin does not hear
  of begins with its first call of a handler, and ends with its commit or rollback.
*/
#ifndef ESKER_TRACE_INCLUDED
#define ESKER_TRACE_INCLUDED

#include "shim.h"
#include <atomic>
#include <string>
#include <vector>

namespace shim
{
/** esker_trace, as a number. */
enum class Trace_level : ulong { off, waits, full };
class Connection;

/** A session's trace. Belongs to its Connection; used by the session's thread. */
class Trace
{
public:
  /** How many there are, and sessions that are to have one: all that anybody pays who is not traced. */
  static std::atomic<uint> count __attribute__((visibility("hidden")));

  static bool any() { return unlikely(count.load(std::memory_order_relaxed) != 0); }
  /** That of this thread's session, if a statement of it is under way. */
  static Trace *current();
  /** A handler's function is called; `handler` tells neighbours apart and is set if it is 0, `table` is its name in the engine. */
  static void called(ulonglong *handler, const std::string &table, const char *function);
  /** A statement that nobody has announced calls a handler: it begins, if the session is traced, or its trace ends. */
  static void begin_if_wanted(THD *thd);
  /** A statement lets go of a table; a routine's has its plan now, and not at its end. */
  static void unlocked(THD *thd);
  /** The server has committed or rolled back a statement; if nobody else announces its end, this is it. */
  static void statement_committed(THD *thd);
  /** A statement begins, and the engine stays open, `query` in this charset; null: it is as thd has it. */
  static void begin(THD *thd, const char *query, size_t bytes, CHARSET_INFO *charset);
  /** The statement ends, with the server's number of an error, or 0. */
  static void end(THD *thd, uint error);

  ~Trace();
  Trace(const Trace &)= delete;
  Trace &operator=(const Trace &)= delete;

  /* A call of the engine: see Traced_call. */
  void enter() { es_trace_enter(); }
  void leave();

private:
  struct Call
  {
    ulonglong handler;
    const char *function;
    std::string table;
    ulonglong at_ns;
    ulonglong count;
    ulonglong full;                             /* end_bulk_insert's buffers */
    bool is_bulk_end;
  };

  Trace()= default;
  /* Numbers of handlers: an address is another one's after it is freed. */
  static std::atomic<ulonglong> handlers __attribute__((visibility("hidden")));

  static Trace_level level_of(THD *thd, const Connection *connection);
  static Trace *open(THD *thd, EsSession *session, Trace_level level);
  void note(ulonglong handler, const std::string &table, const char *function);
  bool fold(ulonglong handler, const char *function);
  void keep_plan(THD *thd);
  void write_calls();
  void write_plan();
  void stop();
  void give_up(const EsError &why);

  EsTrace *trace_= nullptr;
  EsSession *session_= nullptr;
  THD *thd_= nullptr;
  Trace_level level_= Trace_level::off;
  /* A file is of one user. */
  std::string user_;
  bool in_statement_= false;
  std::vector<Call> calls_;
  /* The entry of the call before. */
  size_t last_call_= 0;
  ulonglong calls_dropped_= 0;
  std::string plan_;
  ulonglong first_row_ns_= 0;
  ulonglong buffers_= 0;
  ulong merge_passes_= 0;
  ulong disk_tables_= 0;
};

/** Around a call of the engine, never within another: its processor time is the engine's. */
class Traced_call
{
public:
  Traced_call() : trace_(Trace::any() ? Trace::current() : nullptr)
  {
    if (unlikely(trace_ != nullptr))
      trace_->enter();
  }
  ~Traced_call()
  {
    if (unlikely(trace_ != nullptr))
      trace_->leave();
  }
  Traced_call(const Traced_call &)= delete;
  Traced_call &operator=(const Traced_call &)= delete;

private:
  Trace *trace_;
};

/** MYSQL_AUDIT_PLUGIN. */
extern st_mysql_audit statements;
int init_statements(void *);
int deinit_statements(void *);
}

/** At the head of a handler's function. The server's headers make __func__ something else. */
#define ESKER_CALLED() \
  do { if (shim::Trace::any()) shim::Trace::called(&trace_id_, name_, __FUNCTION__); } while (0)

#endif
