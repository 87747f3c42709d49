/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  CHECK, ANALYZE and OPTIMIZE TABLE. CHECKSUM is the server's own scan.
*/
#include "ha_esker.h"
#include "errors.h"

using namespace shim;

extern "C" bool report_progress(void *context, uint64_t done, uint64_t total)
{
  THD *thd= static_cast<THD *>(context);
  thd_progress_report(thd, done, total);
  return thd_kill_level(thd) != THD_IS_NOT_KILLED;
}

namespace
{
/* Rows of the statement's result, one for each message. */
void report(THD *thd, const char *text)
{
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_CRASHED_ON_USAGE, "%s: %s", product, text);
}

int admin_result(THD *thd, EsStatus status, const char *text)
{
  switch (status) {
  case EsStatus::Ok:
    return HA_ADMIN_OK;
  case EsStatus::Interrupted:
    thd->send_kill_message();
    return HA_ADMIN_FAILED;
  case EsStatus::Damage:
    report(thd, text);
    return HA_ADMIN_CORRUPT;
  default:
    report(thd, text);
    return HA_ADMIN_FAILED;
  }
}
}

/*
  A table is always closed properly, a crash is no reason for suspicion: FAST is CHANGED. What looks keys up is beyond MEDIUM, as it is
  in MyISAM and InnoDB.
*/
int ha_esker::check(THD *thd, HA_CHECK_OPT *options)
{
  ESKER_CALLED();
  EsCheckScope scope= EsCheckScope::All;
  if (options->flags & T_EXTEND)
    scope= EsCheckScope::Extended;
  else if (options->flags & T_QUICK)
    scope= EsCheckScope::Quick;
  else if (options->flags & (T_FAST | T_CHECK_ONLY_CHANGED))
    scope= EsCheckScope::Unchecked;
  uint64_t blocks, damaged= 0;
  EsError why;
  thd_progress_init(thd, 1);
  EsStatus status;
  {
    const Traced_call traced;
    status= es_table_check(table_, scope, report_progress, thd, &blocks, &damaged, &why);
  }
  thd_progress_end(thd);
  if (status == EsStatus::Damage && damaged > 1)
  {
    char text[80];
    my_snprintf(text, sizeof text, "%llu damaged blocks; the first:", static_cast<ulonglong>(damaged));
    report(thd, text);
  }
  return admin_result(thd, status, why.text);
}

/*
  Statistics of rows are kept as rows are written; those of keys are made here and kept, and guessed by whoever opens a table of
  which none are kept.
*/
int ha_esker::analyze(THD *thd, HA_CHECK_OPT *)
{
  ESKER_CALLED();
  EsError why;
  thd_progress_init(thd, 1);
  EsStatus status;
  {
    const Traced_call traced;
    status= es_table_analyze(table_, report_progress, thd, &why);
  }
  thd_progress_end(thd);
  if (status == EsStatus::Ok)
    info(HA_STATUS_CONST);
  return admin_result(thd, status, why.text);
}

int ha_esker::optimize(THD *thd, HA_CHECK_OPT *)
{
  ESKER_CALLED();
  EsError why;
  thd_progress_init(thd, 1);
  EsStatus status;
  {
    const Traced_call traced;
    status= es_table_optimize(table_, report_progress, thd, &why);
  }
  thd_progress_end(thd);
  return admin_result(thd, status, why.text);
}
