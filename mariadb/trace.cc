/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Session traces: what the server knows of a traced statement. Waits and times are the engine's to note.
*/
#include "trace.h"
#include "schema_rows.h"
#include "transaction.h"
#include "variables.h"
#include "sql_select.h"
#include "sql_explain.h"
#include <time.h>
#include <new>
#include <string_view>

namespace shim
{
std::atomic<uint> Trace::count{0};
std::atomic<ulonglong> Trace::handlers{0};

namespace
{
/* Of a statement so many runs of equal calls are kept; a join goes from table to table with each row. */
constexpr size_t most_calls= 1000;
/* Set while the audit plugin is there. */
std::atomic<bool> announces{false};

/* Threads of the server's own run statements that it does not announce. */
bool is_announced(const THD *thd)
{
  return announces.load(std::memory_order_relaxed) && thd->system_thread == NON_SYSTEM_THREAD;
}

/* FLUSH STATUS begins counting anew. */
ulong since(ulong now, ulong then)
{
  return now >= then ? now - then : now;
}

std::string utc(const char *format, ulonglong us)
{
  const time_t seconds= static_cast<time_t>(us / 1000000);
  struct tm parts;
  char text[64], all[80];
  gmtime_r(&seconds, &parts);
  strftime(text, sizeof text, format, &parts);
  my_snprintf(all, sizeof all, "%s.%06u", text, static_cast<uint>(us % 1000000));
  return all;
}

/* The engine writes 64 KiB of a text, and no charset of a client's has characters that are shorter in UTF-8. */
constexpr size_t most_text= 64 * 1024 + 16;

std::string utf8(const char *text, size_t bytes, CHARSET_INFO *from)
{
  bytes= std::min(bytes, most_text);
  std::string converted(bytes * 4, '\0');
  uint errors;
  const uint32 length= my_convert(converted.data(), static_cast<uint32>(converted.size()), &my_charset_utf8mb4_bin, text,
                                  static_cast<uint32>(bytes), from, &errors);
  converted.resize(length);
  return converted;
}

/* Who has logged in, whatever routine runs; of an event its definer. */
std::string user_of(const THD *thd)
{
  const Security_context &who= thd->system_thread == NON_SYSTEM_THREAD ? thd->main_security_ctx : *thd->security_ctx;
  return std::string(who.user ? who.user : "") + "@" + (who.host_or_ip ? who.host_or_ip : "");
}

bool is_of_another(const THD *thd, const std::string &user)
{
  return thd->system_thread == NON_SYSTEM_THREAD && user != user_of(thd);
}

}

Trace *Trace::open(THD *thd, EsSession *session, Trace_level level)
{
  const ulonglong now= my_hrtime().val;
  const std::string folder= trace_folder(), began= utc("%Y-%m-%dT%H:%M:%S", now) + "Z";
  const std::string name= utc("%Y%m%d-%H%M%S", now) + "-" + std::to_string(thd->thread_id);
  const std::string user= user_of(thd);
  EsTraceFile file= {};
  file.folder= folder.c_str();
  file.name= name.c_str();
  file.user= user.c_str();
  file.server= server_version;
  file.began= began.c_str();
  file.level= level == Trace_level::full ? "FULL" : "WAITS";
  file.connection= thd->thread_id;
  file.process= static_cast<uint64_t>(getpid());
  file.table_for_people= table_for_people;
  Trace *trace= new Trace;
  trace->session_= session;
  trace->thd_= thd;
  trace->level_= level;
  trace->user_= user;
  EsError why;
  if (es_trace_open(&file, &trace->trace_, &why) == EsStatus::Ok)
    count++;
  else
    trace->give_up(why);
  return trace;
}

Trace::~Trace()
{
  stop();
}

void Trace::stop()
{
  if (!trace_)
    return;
  es_trace_close(trace_);
  trace_= nullptr;
  in_statement_= false;
  count--;
}

/* The session goes on; it is traced again when it asks again. */
void Trace::give_up(const EsError &why)
{
  if (*why.text)
    sql_print_warning("%s: connection %llu is not traced any more: %s", product,
                      static_cast<ulonglong>(thd_->thread_id), why.text);
  stop();
}

Trace *Trace::current()
{
  const THD *thd= current_thd;
  const Connection *connection= thd ? Connection::find(thd) : nullptr;
  Trace *trace= connection ? connection->trace : nullptr;
  return trace && trace->in_statement_ ? trace : nullptr;
}

void Trace::called(ulonglong *handler, const std::string &table, const char *function)
{
  Trace *trace= current();
  if (!trace)
    return;
  if (!*handler)
    *handler= ++handlers;
  trace->note(*handler, table, function);
}

/*
  Neighbours that are equal are one entry; two calls that take turns, as rnd_next and write_row do, are two, once they have
  done so twice.
*/
bool Trace::fold(ulonglong handler, const char *function)
{
  const auto is= [&](size_t i) { return calls_[i].handler == handler && calls_[i].function == function; };
  const auto alike= [&](size_t i, size_t j) {
    return calls_[i].handler == calls_[j].handler && calls_[i].function == calls_[j].function;
  };
  const size_t noted= calls_.size();
  if (noted && is(last_call_))
    ;
  else if (noted >= 4 && alike(noted - 4, noted - 2) && alike(noted - 3, noted - 1) && (is(noted - 2) || is(noted - 1)))
    last_call_= is(noted - 2) ? noted - 2 : noted - 1;
  else
    return false;
  calls_[last_call_].count++;
  return true;
}

void Trace::note(ulonglong handler, const std::string &table, const char *function)
{
  if (!first_row_ns_ && thd_->get_sent_row_count())
    first_row_ns_= es_trace_now(trace_);
  if (level_ != Trace_level::full)
    return;
  if (fold(handler, function))
    return;
  if (calls_.size() == most_calls)
  {
    calls_dropped_++;
    return;
  }
  Call call= {handler, function, table, es_trace_now(trace_), 1, 0, false};
  const bool begins= !strcmp(function, "start_bulk_insert");
  call.is_bulk_end= !strcmp(function, "end_bulk_insert");
  if (begins || call.is_bulk_end)
  {
    EsWork work;
    es_session_work(session_, &work);
    call.full= work.buffers - buffers_;
    buffers_= work.buffers;
  }
  last_call_= calls_.size();
  calls_.push_back(std::move(call));
}

void Trace::leave()
{
  EsError why;
  if (trace_ && es_trace_leave(engine, trace_, &why) != EsStatus::Ok)
    give_up(why);
}

/* A reset of the connection gives variables their defaults, and takes nobody's wish away. */
Trace_level Trace::level_of(THD *thd, const Connection *connection)
{
  const Trace_level level= trace_level(thd);
  if (level != Trace_level::off || !connection || !connection->is_trace_wanted())
    return level;
  set_trace_level(thd, Trace_level::full);
  return Trace_level::full;
}

/* The session's level may have changed since its last statement, and its user, which nobody may have announced. */
void Trace::begin(THD *thd, const char *query, size_t bytes, CHARSET_INFO *charset)
{
  Connection *connection= Connection::find(thd);
  const Trace_level level= level_of(thd, connection);
  Trace *trace= connection ? connection->trace : nullptr;
  if (trace && trace->in_statement_)
    end(thd, 0);
  es_trace_left_behind();
  if (trace && (trace->level_ != level || is_of_another(thd, trace->user_)))
  {
    delete trace;
    trace= connection->trace= nullptr;
  }
  if (level == Trace_level::off)
    return;
  if (!trace)
  {
    int error;
    if (!connection && !(connection= Connection::open(thd, &error)))
      return;
    trace= connection->trace= open(thd, connection->session(), level);
  }
  if (!trace->trace_)
    return;
  trace->calls_.clear();
  trace->last_call_= 0;
  trace->calls_dropped_= trace->first_row_ns_= 0;
  trace->plan_.clear();
  trace->merge_passes_= thd->status_var.filesort_merge_passes_;
  trace->disk_tables_= thd->status_var.created_tmp_disk_tables_;
  const std::string text= utf8(query, bytes, charset);
  const LEX_CSTRING db= thd->db;
  trace->in_statement_= true;
  es_trace_begin(trace->trace_, trace->session_, thd->query_id, reinterpret_cast<const uint8_t *>(db.str), db.length,
                 reinterpret_cast<const uint8_t *>(text.data()), text.size());
}

void Trace::begin_if_wanted(THD *thd)
{
  if (current())
    return;
  if (trace_level(thd) == Trace_level::off)
  {
    /* A trace that is not wanted any more ends here, if nobody has announced the statement. */
    const Connection *connection= any() ? Connection::find(thd) : nullptr;
    if (!connection || !connection->trace)
      return;
  }
  begin(thd, thd->query(), thd->query_length(), thd->query_charset());
}

void Trace::statement_committed(THD *thd)
{
  if (!is_announced(thd) && !thd->in_sub_stmt && current())
    end(thd, thd->is_error() ? thd->get_stmt_da()->sql_errno() : 0);
}

/*
  As the slow log has it; a statement that failed may have half a plan. What the server makes for it is its statement's, and
  freed here if that has been cleaned up.
*/
void Trace::keep_plan(THD *thd)
{
  if (level_ != Trace_level::full || thd->is_error() || !thd->lex || !thd->lex->explain || thd->lex->describe)
    return;
  const bool was_clean= thd->free_list == nullptr;
  StringBuffer<1024> text;
  if (!print_explain_for_slow_log(thd->lex, thd, &text))
    plan_.assign(text.ptr(), text.length());
  if (was_clean)
    thd->free_items();
}

void Trace::unlocked(THD *thd)
{
  if (thd->spcont || !is_announced(thd))
    if (Trace *trace= current())
      trace->keep_plan(thd);
}

void Trace::write_calls()
{
  for (const Call &call : calls_)
  {
    const std::string table= call.table.empty() ? "" : full_name(call.table.c_str());
    const EsTraceCall line= {call.at_ns, call.count, table.empty() ? nullptr : table.c_str(), call.function, call.is_bulk_end, call.full};
    es_trace_call(trace_, &line);
  }
}

void Trace::write_plan()
{
  constexpr char prefix[]= "# explain: ";
  bool some= false;
  for (size_t begin= 0; begin < plan_.size();)
  {
    const size_t end= std::min(plan_.find('\n', begin), plan_.size());
    if (plan_.compare(begin, sizeof prefix - 1, prefix) == 0)
    {
      begin+= sizeof prefix - 1;
      es_trace_plan(trace_, reinterpret_cast<const uint8_t *>(plan_.data()) + begin, end - begin);
      some= true;
    }
    begin= end + 1;
  }
  if (!some && level_ == Trace_level::full)
    es_trace_plan(trace_, nullptr, 0);
}

void Trace::end(THD *thd, uint error)
{
  Trace *trace= current();
  if (!trace || trace->thd_ != thd)
    return;
  if (!thd->spcont && is_announced(thd))
    trace->keep_plan(thd);
  trace->in_statement_= false;
  trace->write_calls();
  trace->write_plan();
  EsTraceEnd figures= {};
  const Diagnostics_area *da= thd->get_stmt_da();
  figures.rows= thd->get_sent_row_count();
  figures.changed= da->is_ok() ? da->affected_rows() : 0;
  figures.first_row_ns= trace->first_row_ns_;
  figures.error= error;
  figures.merge_passes= since(thd->status_var.filesort_merge_passes_, trace->merge_passes_);
  figures.disk_tables= since(thd->status_var.created_tmp_disk_tables_, trace->disk_tables_);
  figures.disk_bytes= figures.disk_tables ? thd->tmp_tables_size : 0;
  figures.calls_dropped= trace->calls_dropped_;
  figures.killed= thd->killed != NOT_KILLED;
  EsError why;
  if (es_trace_end(engine, trace->trace_, trace->session_, &figures, &why) != EsStatus::Ok)
    trace->give_up(why);
}

namespace
{
/*
  A session that has used no table of Esker's keeps nobody from uninstalling it, and all sessions' events come here: whoever looks
  for a Connection holds the engine.
*/
void connected(THD *thd, const mysql_event_connection *event)
{
  const Engine_use in_use;
  if (!in_use || event->event_subclass == MYSQL_AUDIT_CONNECTION_DISCONNECT)
    return;
  Connection *connection= Connection::find(thd);
  /* A file is of one user. */
  if (connection && event->event_subclass == MYSQL_AUDIT_CONNECTION_CHANGE_USER)
  {
    delete connection->trace;
    connection->trace= nullptr;
    connection->want_trace(false);
  }
  int error;
  if (event->status == 0 && is_user_traced(thd) && (connection || (connection= Connection::open(thd, &error))))
  {
    connection->want_trace(true);
    set_trace_level(thd, Trace_level::full);
  }
}

void stated(THD *thd, const mysql_event_general *event)
{
  /* What a routine runs is part of the statement that calls it. */
  if (thd->spcont || thd->in_sub_stmt)
    return;
  const bool begins= event->event_subclass == MYSQL_AUDIT_GENERAL_LOG;
  /* Errors and warnings come in the midst of a use of the engine. */
  if (!begins && event->event_subclass != MYSQL_AUDIT_GENERAL_STATUS)
    return;
  if (!Trace::any() && (!begins || trace_level(thd) == Trace_level::off))
    return;
  const Engine_use in_use;
  if (!in_use)
    return;
  if (begins)
  {
    const std::string_view command(event->general_command, event->general_command_length);
    if (command == "Query" || command == "Execute")
      Trace::begin(thd, event->general_query, event->general_query_length,
                   const_cast<CHARSET_INFO *>(event->general_charset));
  }
  else
    Trace::end(thd, static_cast<uint>(event->general_error_code));
}

/*
  The server takes this plugin without the engine, too: by its name alone, or where it refuses an engine that was built for another
  version. Then there is not even esker_trace to be read, and what a THD looks like is not known.
*/
void notify(THD *thd, unsigned event_class, const void *what)
{
  if (!thd || !is_open())
    return;
  if (event_class == MYSQL_AUDIT_CONNECTION_CLASS)
    connected(thd, static_cast<const mysql_event_connection *>(what));
  else
    stated(thd, static_cast<const mysql_event_general *>(what));
}
}

st_mysql_audit statements=
{
  MYSQL_AUDIT_INTERFACE_VERSION,
  nullptr,
  notify,
  {MYSQL_AUDIT_GENERAL_CLASSMASK | MYSQL_AUDIT_CONNECTION_CLASSMASK}
};

int init_statements(void *)
{
  announces= true;
  return 0;
}

int deinit_statements(void *)
{
  announces= false;
  return 0;
}
}
