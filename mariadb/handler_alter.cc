/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  ALTER TABLE that leaves the rows where they are: indexes come, go, change names and places. What new ones hold is built while
  others read; nothing of it shows before commit_inplace_alter_table(), which is one durable change in the engine, of all
  partitions at once. After a crash between that and the server's own file the server asks check_version() which of the two
  definitions holds.
*/
#include "ha_esker.h"
#include "errors.h"
#include "sql_partition.h"
#include "ha_partition.h"
#include "sql_table.h"

using namespace shim;

namespace
{
/* What makes it ours. */
constexpr alter_table_operations index_changes=
  ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX |
  ALTER_DROP_UNIQUE_INDEX | ALTER_ADD_PK_INDEX | ALTER_DROP_PK_INDEX | ALTER_INDEX_ORDER;

/* What may come with it: only the server's definition says it. */
constexpr alter_table_operations definition_changes=
  ALTER_RENAME_INDEX | ALTER_INDEX_IGNORABILITY | ALTER_CHANGE_INDEX_COMMENT | ALTER_CHANGE_COLUMN_DEFAULT |
  ALTER_COLUMN_OPTION | ALTER_CHANGE_CREATE_OPTION | ALTER_DROP_CHECK_CONSTRAINT |
  /* Said to each partition of a table that is partitioned, and stays it. */
  ALTER_PARTITIONED;

bool is_same(const EsIndex &a, const EsIndex &b)
{
  if (a.unique != b.unique || a.part_count != b.part_count)
    return false;
  for (uint32_t i= 0; i < a.part_count; i++)
  {
    const EsKeyPart &x= a.parts[i], &y= b.parts[i];
    if (x.column != y.column || x.prefix_bytes != y.prefix_bytes || x.encoding != y.encoding ||
        x.collation != y.collation || x.descending != y.descending)
      return false;
  }
  return true;
}

/* What is planned and built between the calls of one ALTER TABLE, for one partition. */
class Alter_context final : public inplace_alter_handler_ctx
{
public:
  explicit Alter_context(ha_esker *of) : handler(of) {}
  ~Alter_context() override { es_built_indexes_close(built); }

  EsBuiltIndexes *take_built()
  {
    EsBuiltIndexes *const taken= built;
    built= nullptr;
    return taken;
  }

  ha_esker *const handler;
  /* They point into each other: names and parts of the new definition. */
  Record_layout layout;
  Key_definitions keys;
  std::vector<EsIndexPlan> plan;
  EsBuiltIndexes *built= nullptr;
};

/* Where a key of the new definition is in the old one; ES_NEW_INDEX if it is not there. */
uint32_t place_before(const TABLE *table, const Alter_inplace_info *info, uint key)
{
  for (uint i= 0; i < info->index_add_count; i++)
    if (info->index_add_buffer[i] == key)
      return ES_NEW_INDEX;
  const KEY *wanted= info->key_info_buffer + key;
  const char *name= wanted->name.str;
  for (const Alter_inplace_info::Rename_key_pair &pair : info->rename_keys)
    if (pair.new_key == wanted)
      name= pair.old_key->name.str;
  for (uint i= 0; i < table->s->keys; i++)
    if (!my_strcasecmp(system_charset_info, table->key_info[i].name.str, name))
      return i;
  return ES_NEW_INDEX;
}

/* False: out of memory, or there can be no such key, which a copy of the table says. */
bool make_plan(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info, Alter_context *context)
try
{
  Record_layout layout;
  Key_definitions keys;
  Key_definitions::Refusal refusal;
  if (!layout.init(table) || !keys.init(table, layout, &refusal) || refusal.why || !context->layout.init(altered) ||
      !layout.is_same(context->layout) ||
      !context->keys.init(altered, context->layout, &refusal) || refusal.why || context->keys.count() != info->key_count)
    return false;
  for (uint i= 0; i < info->key_count; i++)
  {
    EsIndexPlan planned= {};
    planned.index= context->keys.indexes()[i];
    planned.place= place_before(table, info, i);
    if (planned.place != ES_NEW_INDEX && !is_same(planned.index, keys.indexes()[planned.place]))
      planned.place= ES_NEW_INDEX;
    context->plan.push_back(planned);
  }
  return true;
}
catch (const std::bad_alloc &)
{
  return false;
}

bool adds_any(const Alter_context *context)
{
  for (const EsIndexPlan &planned : context->plan)
    if (planned.place == ES_NEW_INDEX)
      return true;
  return false;
}

/* Is the text of a value another one, though it is the same for the server? */
bool reads_otherwise(const Field *before, const Field *after)
{
  const TYPELIB *names= before->get_typelib(), *now= after->get_typelib();
  for (uint i= 0; names && now && i < std::min(names->count, now->count); i++)
    if (names->type_lengths[i] != now->type_lengths[i] || memcmp(names->type_names[i], now->type_names[i], names->type_lengths[i]))
      return true;
  if (before->cmp_type() == STRING_RESULT)
    return false;
  const bool is_filled= (before->flags | after->flags) & ZEROFILL_FLAG;
  return before->decimals() != after->decimals() || ((before->flags ^ after->flags) & ZEROFILL_FLAG) ||
         (is_filled && before->field_length != after->field_length);
}

/* Does a column's text change in the new definition? */
bool reads_otherwise(const TABLE *altered, const Alter_inplace_info *info)
{
  List_iterator_fast<Create_field> columns(info->alter_info->create_list);
  Field **after= altered->field;
  for (const Create_field *column= columns++; column && *after; column= columns++, after++)
    if (column->field && reads_otherwise(column->field, *after))
      return true;
  return false;
}

/* The server checks some keys by reading, after each write: none checks the rows that are there. */
bool has_checked_keys(const TABLE *table)
{
  return table->s->long_unique_table || table->s->period.unique_keys;
}
}

/* May what changes beside the indexes stay with the server? */
bool ha_esker::changes_only_definition(const TABLE *altered, const Alter_inplace_info *info)
{
  const HA_CREATE_INFO *create_info= info->create_info;
  if (info->handler_flags & ~(index_changes | definition_changes))
    return false;
  if (create_info->used_fields & (HA_CREATE_USED_CHARSET | HA_CREATE_USED_DEFAULT_CHARSET | HA_CREATE_USED_PACK_KEYS |
                                  HA_CREATE_USED_CHECKSUM | HA_CREATE_USED_MAX_ROWS) ||
      table->s->row_type != create_info->row_type || create_info->sequence ||
      table->versioned() != altered->versioned())
    return false;
  const Field *counts= table->found_next_number_field, *will_count= altered->found_next_number_field;
  if (!counts != !will_count || (counts && counts->field_index != will_count->field_index))
    return false;
  return table->s->reclength == altered->s->reclength &&
         check_if_incompatible_data(info->create_info, IS_EQUAL_YES) == COMPATIBLE_DATA_YES;
}

enum_alter_inplace_result ha_esker::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info)
{
  /* What a key is of may be computed of it, which the server does not look at. */
  if (layout_.keeps_virtual() &&
      ((info->handler_flags & ALTER_VIRTUAL_GCOL_EXPR) || reads_otherwise(altered, info)))
  {
    info->unsupported_reason= "a virtual column has a key";
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  if (!(info->handler_flags & index_changes))
    return handler::check_if_supported_inplace_alter(altered, info);
  /* Each partition has its own, or none has one. */
  Alter_context *context= new (ha_thd()->mem_root) Alter_context(this);
  info->handler_ctx= context;
  if (!context)
    return HA_ALTER_ERROR;
  if (!table->part_info != !altered->part_info)
    info->unsupported_reason= "the table is partitioned anew";
  else if (table->s->tmp_table != NO_TMP_TABLE)
    info->unsupported_reason= "the table is temporary";
  else if (info->ignore)
    info->unsupported_reason= "IGNORE";
  else if (has_checked_keys(table) || has_checked_keys(altered))
    info->unsupported_reason= "the table has a long UNIQUE key, or one WITHOUT OVERLAPS";
  else if (changes_only_definition(altered, info) && make_plan(table, altered, info, context))
  {
    if (!adds_any(context))
      return HA_ALTER_INPLACE_INSTANT;
    /* As far as the server goes whoever locks may do it at once, too. */
    const bool at_once= info->alter_info->algorithm(ha_thd()) == Alter_info::ALTER_TABLE_ALGORITHM_INSTANT;
    return at_once ? HA_ALTER_INPLACE_NOCOPY_LOCK : HA_ALTER_INPLACE_SHARED_LOCK;
  }
  return HA_ALTER_INPLACE_NOT_SUPPORTED;
}

/* Fails with the words of what went wrong. */
static bool alter_failed(EsStatus status, const char *text)
{
  if (raise_plain(status))
    return true;
  if (has_detail(status))
    raise(status, text);
  else
    my_error(ER_GET_ERRNO, MYF(0), ha_error(status), product);
  return true;
}

/* Fails with the key that a row has which another one has already. */
bool ha_esker::duplicate_found(TABLE *altered, uint place, uint64_t row)
{
  uchar position[sizeof row];
  mi_int8store(position, row);
  MY_BITMAP *const read_set= tmp_use_all_columns(table, &table->read_set);
  const int error= rnd_pos(table->record[0], position);
  if (!error)
    memcpy(altered->record[0], table->record[0], table->s->reclength);
  tmp_restore_column_map(&table->read_set, read_set);
  print_keydup_error(altered, error ? nullptr : altered->key_info + place, MYF(0));
  close_cursors();
  return true;
}

bool ha_esker::build_indexes(TABLE *altered, inplace_alter_handler_ctx *planned)
{
  Alter_context *context= static_cast<Alter_context *>(planned);
  THD *thd= ha_thd();
  uint32_t place= 0;
  uint64_t row= 0;
  EsError why;
  thd_progress_init(thd, 1);
  const EsStatus status= es_build_indexes(table_, context->plan.data(), static_cast<uint32_t>(context->plan.size()),
                                          report_progress, thd, &context->built, &place, &row, &why);
  thd_progress_end(thd);
  if (status == EsStatus::Ok)
    return false;
  if (status == EsStatus::DuplicateKey)
    return duplicate_found(altered, place, row);
  return alter_failed(status, why.text);
}

bool ha_esker::inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  /* Without new ones there is nothing to be done before nobody is there any more. */
  const Alter_context *context= static_cast<const Alter_context *>(info->handler_ctx);
  return context && adds_any(context) && build_indexes(altered, info->handler_ctx);
}

/* All that are in the array, which ends with a null, become durable at once. */
bool ha_esker::commit_alter(TABLE *altered, inplace_alter_handler_ctx **contexts)
try
{
  std::vector<EsBuiltIndexes *> built;
  for (uint i= 0; contexts[i]; i++)
  {
    Alter_context *context= static_cast<Alter_context *>(contexts[i]);
    if (!context->built && context->handler->build_indexes(altered, context))
      return true;
    built.push_back(context->built);
  }
  for (uint i= 0; contexts[i]; i++)
    static_cast<Alter_context *>(contexts[i])->take_built();
  EsError why;
  const EsStatus status= es_alter_indexes(built.data(), static_cast<uint32_t>(built.size()), &why);
  return status != EsStatus::Ok && alter_failed(status, why.text);
}
catch (const std::bad_alloc &)
{
  return alter_failed(EsStatus::OutOfMemory, "out of memory");
}

/*
  AUTO_INCREMENT=n. Of a partitioned table the greatest of the partitions' counters counts, but each may go, be emptied, or
  become a table of its own.
*/
bool ha_esker::raise_counter(const TABLE *altered, const HA_CREATE_INFO *create_info)
{
  if (!(create_info->used_fields & HA_CREATE_USED_AUTO) || !altered->found_next_number_field)
    return false;
  handler *alone[]= {this, nullptr};
  const bool is_partition= table->part_info != nullptr;
  handler **each= is_partition ? static_cast<ha_partition *>(table->file)->get_child_handlers() : alone;
  for (; *each; each++)
  {
    EsError why;
    const EsTable *const counted= static_cast<ha_esker *>(*each)->table_;
    const EsStatus status= es_count_from(counted, create_info->auto_increment_value, &why);
    if (status != EsStatus::Ok)
      return alter_failed(status, why.text);
  }
  return false;
}

bool ha_esker::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit)
{
  if (commit && raise_counter(altered, info->create_info))
    return true;
  Alter_context *context= static_cast<Alter_context *>(info->handler_ctx);
  if (!context)
  {
    info->group_commit_ctx= nullptr;
    return false;
  }
  if (!commit)
  {
    es_built_indexes_close(context->take_built());
    return false;
  }
  inplace_alter_handler_ctx *alone[]= {context, nullptr};
  inplace_alter_handler_ctx **const all= info->group_commit_ctx ? info->group_commit_ctx : alone;
  /* The partitions that follow need not be asked. */
  info->group_commit_ctx= nullptr;
  return commit_alter(altered, all);
}

/* Of the table as it is before the change that has been prepared: see check_version(). */
ulonglong ha_esker::table_version() const
{
  uint64_t version= 0;
  return es_table_version(engine, name_.c_str(), &version, nullptr) == EsStatus::Ok ? version : 0;
}

/*
  Of a partitioned table the server has no version. Its partitions can be opened only by a definition that has their keys: one
  of before that still opens them holds, whatever was changed. 0: it is for other keys; 2: it cannot be told.
*/
static int is_opened_as_before(const char *path)
{
  THD *thd= current_thd;
  Dummy_error_handler silence;
  TABLE_SHARE share;
  TABLE table;
  /* What partitions are made by is parsed, for a table that has a name. */
  char name[NAME_LEN + 1], db[FN_REFLEN];
  size_t db_bytes;
  filename_to_tablename(base_name(path), name, sizeof(name));
  dirname_part(db, path, &db_bytes);
  if (db_bytes)
    db[db_bytes - 1]= 0;
  const LEX_CSTRING alias= {name, strlen(name)};
  init_tmp_table_share(thd, &share, table_name(db), 0, name, path);
  thd->push_internal_handler(&silence);
  const bool is_opened= !open_table_def(thd, &share) &&
                        !open_table_from_share(thd, &share, &alias, HA_OPEN_KEYFILE | HA_TRY_READ_ONLY,
                                               EXTRA_RECORD, HA_OPEN_FOR_ALTER, &table, false);
  if (is_opened)
    closefrm(&table);
  thd->pop_internal_handler();
  const bool has_other_keys= share.open_errno == HA_ERR_INCOMPATIBLE_DEFINITION;
  free_table_share(&share);
  return is_opened ? 1 : has_other_keys ? 0 : 2;
}

/* Is the change durable that a table had not seen whose version was `before`? 0: it is. */
int shim::check_version(handlerton *, const char *path, const LEX_CUSTRING *, ulonglong before)
{
  uint64_t version;
  switch (es_table_version(engine, canonical_name(path).c_str(), &version, nullptr)) {
  case EsStatus::Ok:
    return version == before;
  case EsStatus::NoSuchTable:
    return is_opened_as_before(path);
  default:
    return 2;
  }
}
