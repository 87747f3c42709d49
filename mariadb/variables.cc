/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  System variables. Their ranges are the server's to check; what changes while the server runs is handed to the engine
  at once.
*/
#include "variables.h"
#include "set_var.h"
#include "transaction.h"
#include <mutex>
#include <string>

/* Exported by the server, declared in none of its headers. */
void ignore_db_dirs_append(const char *folder);

namespace shim
{
namespace
{
char *data_dir;
ulonglong memory_limit;
ulonglong bulk_buffer_size;
ulonglong bulk_threshold;
ulonglong wal_segment_size;
ulong flush_log_at_trx_commit;
ulong sync_method;
ulong autoinc_lock_mode_number;
uint recovery_target_seconds;
ulonglong recovery_target_bytes;
my_bool profile_locks;
char *trace_dir;
char *trace_user;
ulonglong trace_max_size;

constexpr ulonglong KiB= 1024, MiB= 1024 * KiB, GiB= 1024 * MiB, TiB= 1024 * GiB;

/* Each stores the checked value and tells the engine. */
void update_memory_limit(THD *, st_mysql_sys_var *, void *value, const void *save)
{
  ulonglong bytes= *static_cast<const ulonglong *>(save);
  *static_cast<ulonglong *>(value)= bytes;
  es_set_memory_limit(engine, bytes);
}

void update_bulk_buffer(THD *, st_mysql_sys_var *, void *value, const void *save)
{
  ulonglong bytes= *static_cast<const ulonglong *>(save);
  *static_cast<ulonglong *>(value)= bytes;
  es_set_bulk_buffer(engine, bytes);
}

void update_flush_mode(THD *, st_mysql_sys_var *, void *value, const void *save)
{
  ulong mode= *static_cast<const ulong *>(save);
  /* The variable's numbers are the engine's. */
  static_assert(EsFlushMode{0} == EsFlushMode::Lazy && EsFlushMode{1} == EsFlushMode::EveryCommit &&
                EsFlushMode{2} == EsFlushMode::WriteOnly);
  if (es_set_flush_mode(engine, static_cast<EsFlushMode>(mode)) == EsStatus::Ok)
    *static_cast<ulong *>(value)= mode;
}

void update_profile_locks(THD *, st_mysql_sys_var *, void *value, const void *save)
{
  my_bool on= *static_cast<const my_bool *>(save);
  *static_cast<my_bool *>(value)= on;
  es_profile_locks(on);
}

/* Plugins' variables have no privilege of their own, and a trace has what others write. */
bool may_not_trace(THD *thd)
{
  if (thd->security_ctx->master_access & SUPER_ACL)
    return false;
  my_error(ER_SPECIFIC_ACCESS_DENIED_ERROR, MYF(0), "SUPER");
  return true;
}

const char *trace_names[]= {"OFF", "WAITS", "FULL", NullS};
TYPELIB trace_typelib= {array_elements(trace_names) - 1, "", trace_names, nullptr};

/* The server's own check of an ENUM, for who may. */
int check_trace(THD *thd, st_mysql_sys_var *, void *save, st_mysql_value *value)
{
  if (may_not_trace(thd))
    return 1;
  long long number= -1;
  if (value->value_type(value) == MYSQL_VALUE_TYPE_STRING)
  {
    char buf[16];
    int length= sizeof buf;
    if (const char *name= value->val_str(value, buf, &length))
      number= find_type(name, &trace_typelib, FIND_TYPE_NO_PREFIX) - 1;
  }
  else if (value->is_unsigned(value) | value->val_int(value, &number))
    return 1;
  if (number < 0 || number >= static_cast<long long>(trace_typelib.count))
    return 1;
  *static_cast<long *>(save)= static_cast<long>(number);
  return 0;
}

void update_trace(THD *thd, st_mysql_sys_var *, void *value, const void *save);

/* What it says is kept apart, too: the server changes the variable while others look at it. */
std::mutex traced_user_lock;
std::string traced_user;

int check_trace_user(THD *thd, st_mysql_sys_var *, void *save, st_mysql_value *value)
{
  if (may_not_trace(thd))
    return 1;
  int length= 0;
  const char *name= value->val_str(value, nullptr, &length);
  if (name && *name && !strchr(name, '@'))
  {
    my_printf_error(ER_WRONG_VALUE_FOR_VAR, "esker_trace_user is 'user@host', as CURRENT_USER() has it, not '%s'", MYF(0), name);
    return 1;
  }
  *static_cast<const char **>(save)= name ? thd->strmake(name, static_cast<size_t>(length)) : nullptr;
  return 0;
}

void update_trace_user(THD *, st_mysql_sys_var *, void *value, const void *save)
{
  const char *name= *static_cast<const char *const *>(save);
  char *old= *static_cast<char **>(value);
  *static_cast<char **>(value)= name ? my_strdup(PSI_NOT_INSTRUMENTED, name, MYF(0)) : nullptr;
  my_free(old);
  const std::lock_guard<std::mutex> lock(traced_user_lock);
  traced_user= name ? name : "";
}

void update_trace_size(THD *, st_mysql_sys_var *, void *value, const void *save)
{
  const ulonglong bytes= *static_cast<const ulonglong *>(save);
  *static_cast<ulonglong *>(value)= bytes;
  es_trace_max_size(bytes);
}

const char *compression_names[]= {"none", "lz4", "zstd", NullS};
static_assert(EsCompression{0} == EsCompression::None && EsCompression{1} == EsCompression::Lz4 &&
              EsCompression{2} == EsCompression::Zstd, "compression_names are in the order of their numbers");
TYPELIB compression_typelib= {array_elements(compression_names) - 1, "", compression_names, nullptr};

const char *sync_method_names[]= {"fdatasync", "dsync", "uring", "auto", NullS};
static_assert(EsSyncMethod{0} == EsSyncMethod::Fdatasync && EsSyncMethod{1} == EsSyncMethod::Dsync &&
              EsSyncMethod{2} == EsSyncMethod::Uring && EsSyncMethod{3} == EsSyncMethod::Auto,
              "sync_method_names are in the order of their numbers");
TYPELIB sync_method_typelib= {array_elements(sync_method_names) - 1, "", sync_method_names, nullptr};

MYSQL_SYSVAR_STR(data_dir, data_dir, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
                 "Folder of Esker's files; relative to the server's data folder",
                 nullptr, nullptr, "#esker");

MYSQL_SYSVAR_ULONGLONG(memory_limit, memory_limit, PLUGIN_VAR_RQCMDARG,
                       "Bytes of memory that Esker may use in all, caches and buffers included",
                       nullptr, update_memory_limit, 256 * MiB, 32 * MiB, 16 * TiB, MiB);

MYSQL_SYSVAR_ULONGLONG(bulk_buffer_size, bulk_buffer_size, PLUGIN_VAR_RQCMDARG,
                       "Bytes of each buffer in which the rows of a large write gather before they are written",
                       nullptr, update_bulk_buffer, 4 * MiB, 256 * KiB, 256 * MiB, 4 * KiB);

MYSQL_SYSVAR_ULONGLONG(bulk_threshold, bulk_threshold, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
                       "Bytes of rows in a transaction from which on they are written to files of their own instead of"
                       " to the log",
                       nullptr, nullptr, 512 * KiB, 4 * KiB, 64 * MiB, KiB);

MYSQL_SYSVAR_ULONGLONG(wal_segment_size, wal_segment_size, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
                       "Bytes of each preallocated file of the log",
                       nullptr, nullptr, 64 * MiB, MiB, GiB, MiB);

MYSQL_SYSVAR_ULONG(flush_log_at_trx_commit, flush_log_at_trx_commit, PLUGIN_VAR_RQCMDARG,
                   "1: each commit is durable when it returns. 2: each commit is written to the operating system, which"
                   " survives a crash of the server, and made durable about once a second. 0: written and made durable"
                   " about once a second",
                   nullptr, update_flush_mode, 1, 0, 2, 0);

/*
  Not auto by default: it costs up to half a second at every start, and on a device whose flushes vary more than the
  methods differ it buys nothing, or another answer each time. Whoever has a fast device asks once, and then by name.
*/
MYSQL_SYSVAR_ENUM(sync_method, sync_method, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
                  "What makes the log durable. fdatasync: a write, then a sync. dsync: one write that is durable. uring:"
                  " a write and a sync by one call of io_uring. auto: tries each 50 times at the start, half a second at"
                  " most, and keeps fdatasync unless another is a tenth faster beyond doubt; the figures are in the error"
                  " log. One that the system refuses gives way to fdatasync, with a warning; Esker_sync_method has what"
                  " is used",
                  nullptr, nullptr, static_cast<ulong>(EsSyncMethod::Fdatasync), &sync_method_typelib);

MYSQL_SYSVAR_ULONG(autoinc_lock_mode, autoinc_lock_mode_number, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
                   "AUTO_INCREMENT values of statements that run at the same time. 2: interleaved, nobody waits. 1:"
                   " consecutive in a statement whose number of rows is not known before, as INSERT ... SELECT and LOAD"
                   " DATA; others wait for it. 0: consecutive in each statement, others wait",
                   nullptr, nullptr, 2, 0, 2, 0);

MYSQL_SYSVAR_UINT(recovery_target_seconds, recovery_target_seconds, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
                  "Memory is written out so early that restart after a crash takes about this many seconds",
                  nullptr, nullptr, 5, 1, 3600, 0);

MYSQL_SYSVAR_ULONGLONG(recovery_target_bytes, recovery_target_bytes,
                       PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
                       "Memory is written out so early that a restart replays about this many bytes of the log, whatever"
                       " time that takes; 0: as recovery_target_seconds says. For tests",
                       nullptr, nullptr, 0, 0, TiB, KiB);

MYSQL_SYSVAR_BOOL(profile_locks, profile_locks, PLUGIN_VAR_OPCMDARG,
                  "ON: times how long Esker's own locks are held and how long releasing them takes, always, and samples the stacks of"
                  " those who wait; OFF: of one in 64 acquisitions, and no stacks. For INFORMATION_SCHEMA.ESKER_MUTEXES,"
                  " ESKER_MUTEX_STACKS and SHOW ENGINE ESKER MUTEX",
                  nullptr, update_profile_locks, FALSE);

MYSQL_SYSVAR_STR(trace_dir, trace_dir, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
                 "Folder of session traces; relative to the server's data folder",
                 nullptr, nullptr, "#esker_trace");

MYSQL_SYSVAR_STR(trace_user, trace_user, PLUGIN_VAR_MEMALLOC | PLUGIN_VAR_RQCMDARG,
                 "The next session of this user, 'user@host' as CURRENT_USER() has it, is traced with esker_trace=FULL. Needs"
                 " SUPER",
                 check_trace_user, update_trace_user, nullptr);

MYSQL_SYSVAR_ULONGLONG(trace_max_size, trace_max_size, PLUGIN_VAR_RQCMDARG,
                       "Bytes of a session's trace, and of all traces in esker_trace_dir together, at which tracing ends",
                       nullptr, update_trace_size, GiB, 4 * KiB, 16 * TiB, KiB);

MYSQL_THDVAR_ENUM(trace, PLUGIN_VAR_RQCMDARG,
                  "Writes what the session does to a file in esker_trace_dir, for 'esker trace'. WAITS: each wait, and where"
                  " each statement's time went. FULL: the calls of the storage engine and the plan, too. Needs SUPER",
                  check_trace, update_trace, static_cast<ulong>(Trace_level::off), &trace_typelib);

/* SET ... = DEFAULT is not checked; who may not keeps what there is. Who may ends for his session what somebody else has asked for. */
void update_trace(THD *thd, st_mysql_sys_var *, void *value, const void *save)
{
  if (!(thd->security_ctx->master_access & SUPER_ACL))
  {
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_SPECIFIC_ACCESS_DENIED_ERROR,
                        ER_THD(thd, ER_SPECIFIC_ACCESS_DENIED_ERROR), "SUPER");
    return;
  }
  const ulong level= *static_cast<ulong *>(value)= *static_cast<const ulong *>(save);
  /* Asked so: for the session's own the server would take a lock that it has already where the global one is set. */
  if (value == &THDVAR(static_cast<THD *>(nullptr), trace) || level != static_cast<ulong>(Trace_level::off))
    return;
  const Engine_use in_use;
  if (Connection *connection= in_use ? Connection::find(thd) : nullptr)
    connection->want_trace(false);
}

MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
                   "Seconds that a statement waits for a row that another transaction has locked",
                   nullptr, nullptr, 50, 0, 100000000, 0);

MYSQL_THDVAR_UINT(read_blocks, PLUGIN_VAR_RQCMDARG,
                  "So many blocks that lie beside each other are read by one call where a statement reads a table or an index from"
                  " block to block; fewer at its beginning, and where they are much beside the cache. 1: each by itself",
                  nullptr, nullptr, 1, 1, 1024, 0);

MYSQL_THDVAR_BOOL(snapshot_isolation, PLUGIN_VAR_OPCMDARG,
                  "ON: a REPEATABLE READ transaction that would change a row which another has changed since its read"
                  " view was opened gets an error. OFF: it changes the latest version",
                  nullptr, nullptr, FALSE);

MYSQL_THDVAR_ENUM(default_compression, PLUGIN_VAR_RQCMDARG,
                  "COMPRESSION of new tables that do not say",
                  nullptr, nullptr, static_cast<ulong>(EsCompression::Lz4), &compression_typelib);
}

st_mysql_sys_var *system_variables[]=
{
  MYSQL_SYSVAR(data_dir),
  MYSQL_SYSVAR(memory_limit),
  MYSQL_SYSVAR(bulk_buffer_size),
  MYSQL_SYSVAR(bulk_threshold),
  MYSQL_SYSVAR(wal_segment_size),
  MYSQL_SYSVAR(flush_log_at_trx_commit),
  MYSQL_SYSVAR(sync_method),
  MYSQL_SYSVAR(autoinc_lock_mode),
  MYSQL_SYSVAR(recovery_target_seconds),
  MYSQL_SYSVAR(recovery_target_bytes),
  MYSQL_SYSVAR(profile_locks),
  MYSQL_SYSVAR(trace_dir),
  MYSQL_SYSVAR(trace_user),
  MYSQL_SYSVAR(trace_max_size),
  MYSQL_SYSVAR(trace),
  MYSQL_SYSVAR(lock_wait_timeout),
  MYSQL_SYSVAR(read_blocks),
  MYSQL_SYSVAR(snapshot_isolation),
  MYSQL_SYSVAR(default_compression),
  nullptr
};

ha_create_table_option table_options[]=
{
  HA_TOPTION_SYSVAR("COMPRESSION", compression, default_compression),
  HA_TOPTION_END
};

static std::string in_data_home(const char *folder)
{
  std::string path;
  if (!test_if_hard_path(folder))
  {
    path.append(mysql_real_data_home);
    if (path.empty() || path.back() != FN_LIBCHAR)
      path.push_back(FN_LIBCHAR);
  }
  return path.append(folder);
}

bool fill_options(EsOptions *options, std::string *folder, EsError *why)
{
  es_default_options(options);
  if (es_data_folder(data_dir ? data_dir : "", mysql_real_data_home, why) != EsStatus::Ok)
    return false;
  *folder= in_data_home(data_dir);
  if (es_trace_folder(trace_dir ? trace_dir : "", mysql_real_data_home, folder->c_str(), why) != EsStatus::Ok)
    return false;
  for (const char *own : {data_dir, trace_dir})
    /* Or SHOW DATABASES would take it for a database. */
    if (!test_if_hard_path(own))
      ignore_db_dirs_append(own);
  es_trace_max_size(trace_max_size);
  traced_user= trace_user ? trace_user : "";
  options->data_dir= folder->c_str();
  options->memory_limit_bytes= memory_limit;
  options->bulk_buffer_bytes= bulk_buffer_size;
  options->bulk_threshold_bytes= bulk_threshold;
  options->wal_segment_bytes= wal_segment_size;
  options->recovery_target_seconds= recovery_target_seconds;
  options->recovery_target_bytes= recovery_target_bytes;
  options->flush_mode= static_cast<EsFlushMode>(flush_log_at_trx_commit);
  options->sync_method= static_cast<EsSyncMethod>(sync_method);
  es_profile_locks(profile_locks);
  return true;
}

uint64_t lock_timeout_us(THD *thd)
{
  uint64_t seconds= THDVAR(thd, lock_wait_timeout);
  /* WAIT n and NOWAIT set lock_wait_timeout for the statement and nothing of ours. */
  List_iterator_fast<set_var_base> it(thd->lex->stmt_var_list);
  while (set_var_base *base= it++)
  {
    const set_var *var= dynamic_cast<const set_var *>(base);
    if (var && var->var && !strcmp(var->var->name.str, "lock_wait_timeout"))
      seconds= thd->variables.lock_wait_timeout;
  }
  return seconds * 1000000;
}

Autoinc_lock_mode autoinc_lock_mode()
{
  return static_cast<Autoinc_lock_mode>(autoinc_lock_mode_number);
}

bool snapshot_isolation(THD *thd)
{
  return THDVAR(thd, snapshot_isolation);
}

uint read_blocks(THD *thd)
{
  return THDVAR(thd, read_blocks);
}

Trace_level trace_level(THD *thd)
{
  return static_cast<Trace_level>(THDVAR(thd, trace));
}

std::string trace_folder()
{
  return in_data_home(trace_dir);
}

void set_trace_level(THD *thd, Trace_level level)
{
  THDVAR(thd, trace)= static_cast<ulong>(level);
}

bool is_user_traced(const THD *thd)
{
  const Security_context *who= thd->security_ctx;
  const std::lock_guard<std::mutex> lock(traced_user_lock);
  if (traced_user.empty() || traced_user != std::string(who->priv_user) + "@" + who->priv_host)
    return false;
  traced_user.clear();
  return true;
}
}
