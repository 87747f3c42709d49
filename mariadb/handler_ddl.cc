/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  CREATE, DROP, RENAME, TRUNCATE and what ALTER asks. Each call is atomic and durable in the engine, and may come twice:
  recovery of the server's DDL log repeats what it is not sure of.
*/
#include "ha_esker.h"
#include "errors.h"
#include "variables.h"
#include "create_options.h"
#include "ha_partition.h"
#include "sql_table.h"

using namespace shim;

const char *shim::table_name(const char *path)
{
  return path[0] == FN_CURLIB && path[1] == FN_LIBCHAR ? path + 2 : path;
}

/* As get_canonical_filename() makes one for a handler; a handlerton gets paths as they come. */
std::string shim::canonical_name(const char *path)
{
  std::string name= path;
  bool is_temporary= false;
  for (uint i= 0; i <= mysql_tmpdir_list.max; i++)
    is_temporary= is_temporary || is_prefix(path, mysql_tmpdir_list.list[i]);
  if (lower_case_table_names == 2 && !is_temporary)
    my_casedn_str(files_charset_info, &name[std::min<size_t>(mysql_data_home_len, name.size())]);
  return table_name(name.c_str());
}

namespace
{
void warn_ignored(THD *thd, const char *option)
{
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED, ER_THD(thd, WARN_OPTION_IGNORED),
                      option);
}

bool is_known(const engine_option_value *option)
{
  for (const ha_create_table_option *known= table_options; known->name; known++)
    if (!system_charset_info->strnncoll(option->name.str, option->name.length, known->name, known->name_length))
      return true;
  return false;
}

/* ALTER TABLE ... ENGINE keeps what the other engine was told and this one does not know, and says nothing of it. */
void warn_of_foreign_options(THD *thd, const TABLE_SHARE *share, const HA_CREATE_INFO *create_info)
{
  if (thd_sql_command(thd) != SQLCOM_ALTER_TABLE || !(create_info->used_fields & HA_CREATE_USED_ENGINE))
    return;
  for (const engine_option_value *option= share->option_list; option; option= option->next)
    if (option->value.str && !is_known(option))
      warn_ignored(thd, option->name.str);
}

/* The server leaves them to the engine, and says nothing. */
void warn_of_foreign_keys(THD *thd, const HA_CREATE_INFO *create_info)
{
  if (!create_info->alter_info)
    return;
  List_iterator_fast<Key> keys(create_info->alter_info->key_list);
  while (const Key *key= keys++)
    if (key->type == Key::FOREIGN_KEY)
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION,
                          "%s: FOREIGN KEY ... REFERENCES %s is ignored: it is not kept, and nobody enforces it", product,
                          static_cast<const Foreign_key *>(key)->ref_table.str);
}

/* The row format to use, with a warning when it is not the one that was asked for. */
EsRowFormat row_format_of(THD *thd, const HA_CREATE_INFO *create_info, const Record_layout &layout)
{
  const char *reason= nullptr;
  switch (create_info->row_type) {
  case ROW_TYPE_DEFAULT:
  case ROW_TYPE_NOT_USED:
  case ROW_TYPE_DYNAMIC:
    return EsRowFormat::Dynamic;
  case ROW_TYPE_FIXED:
    if (!layout.has_blobs())
      return EsRowFormat::Fixed;
    reason= "not possible with BLOB or TEXT columns";
    break;
  default:
    reason= "unknown to this engine";
  }
  if (create_info->used_fields & HA_CREATE_USED_ROW_FORMAT)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION,
                        "%s: ROW_FORMAT=%s is %s, ROW_FORMAT=DYNAMIC is used", product,
                        ha_row_type[create_info->row_type].str, reason);
  return EsRowFormat::Dynamic;
}

int refuse_key(const TABLE_SHARE *share, const KEY *key, const char *what)
{
  my_printf_error(ER_NOT_SUPPORTED_YET, "%s: %s not supported yet (table '%s', key '%s')", MYF(0), product, what,
                  share->table_name.str, key->name.str);
  return HA_WRONG_CREATE_OPTION;
}
}

/* The server's name of a partition that is filled to take the place of the one without this. */
static const char filled_partition[]= "#TMP#";

/* Is it the server's name of a table that ALTER TABLE copies another one into, or of one of its partitions? */
static bool is_alter_copy(const char *path)
{
  static const char prefix[]= "#sql-alter-";
  const char *separator= strrchr(path, FN_LIBCHAR);
  return !strncmp(separator ? separator + 1 : path, prefix, sizeof(prefix) - 1);
}

/*
  Is it a table that ALTER TABLE fills under another name, to take a name then that the engine has given to a table of which the server
  knows nothing? Told at the end it would be too late: after a crash there recovery drops the old table and takes no notice of
  what the engine says.
*/
bool ha_esker::fills_left_over(const char *path, const TABLE *form, std::string *name) const
{
  if (!is_alter_copy(path))
    return false;
  char last[FN_REFLEN + 1];
  build_table_filename(last, sizeof(last) - 1, form->s->db.str, form->s->table_name.str, "", 0);
  const char *partition= strstr(path, "#P#");
  *name= table_name((std::string(last) + (partition ? partition : "")).c_str());
  if (!es_has_table(engine, name->c_str()))
    return false;
  for (const TABLE_LIST *known= ha_thd()->lex->query_tables; known; known= known->next_global)
    if (known->table && is_table_of(known->table, *name))
      return false;
  return true;
}

/* Is it the engine's name of this table, or of one of its partitions? A sequence's handler is the server's, before the engine's. */
bool ha_esker::is_table_of(const TABLE *table, const std::string &name)
{
  if (!table->part_info)
    return table->file->storage_ht() == hton && name == table_name(table->s->normalized_path.str);
  if (table->file->partition_ht() != hton)
    return false;
  /* They end with a null; the table's partition_info may tell of others by now, that the statement makes. */
  for (handler *const *part= static_cast<ha_partition *>(table->file)->get_child_handlers(); *part; part++)
    if (static_cast<const ha_esker *>(*part)->name_ == name)
      return true;
  return false;
}

int ha_esker::create(const char *path, TABLE *form, HA_CREATE_INFO *create_info)
{
  THD *thd= ha_thd();
  std::string left_over;
  if (fills_left_over(path, form, &left_over))
  {
    raise_left_over((std::string(product) + " table '" + left_over + "' exists already").c_str());
    return HA_ERR_TABLE_EXIST;
  }
  if (create_info->data_file_name)
    warn_ignored(thd, "DATA DIRECTORY");
  if (create_info->index_file_name)
    warn_ignored(thd, "INDEX DIRECTORY");
  warn_of_foreign_options(thd, form->s, create_info);
  warn_of_foreign_keys(thd, create_info);

  Record_layout layout;
  if (!layout.init(form))
    return HA_ERR_OUT_OF_MEM;
  Key_definitions keys;
  Key_definitions::Refusal refusal;
  if (!keys.init(form, layout, &refusal))
    return HA_ERR_OUT_OF_MEM;
  if (refusal.why)
    return refuse_key(form->s, refusal.key, refusal.why);
  EsTableDef def= {};
  def.layout= layout.c_layout();
  def.indexes= keys.indexes();
  def.index_count= keys.count();
  if (form->found_next_number_field)
    def.auto_increment= create_info->auto_increment_value;
  def.row_format= row_format_of(thd, create_info, layout);
  def.compression= static_cast<EsCompression>(form->s->option_struct ? form->s->option_struct->compression : 0);
  def.temporary= (create_info->options & HA_LEX_CREATE_TMP_TABLE) != 0;
  EsError why;
  EsStatus status= es_create_table(engine, table_name(path), &def, &why);
  if (status == EsStatus::TableExists)
    raise_left_over(why.text);
  else if (status != EsStatus::Ok && has_detail(status))
    raise(status, why.text);
  return ha_error(status);
}

extern "C" void add_name(void *names, const char *name)
{
  static_cast<std::vector<std::string> *>(names)->emplace_back(name);
}

static std::vector<std::string> tables_that_begin(const std::string &prefix)
{
  std::vector<std::string> names;
  es_tables_that_begin(engine, prefix.c_str(), add_name, &names);
  return names;
}

/*
  The server removes its own files of a partitioned table first. After a crash in between it knows nothing of the rest:
  those partitions go when a table of their name is dropped that nobody has, or with their database. So do those of which a
  prepared transaction has rows: before it comes here the server has the table's own file removed, or another definition in its
  place, and an error would leave nothing that anybody could use. However that transaction ends, what it has elsewhere stays.
*/
int shim::drop_table(handlerton *, const char *path)
{
  EsError why;
  const std::string name= canonical_name(path);
  const bool is_partition= name.find("#P#") != name.npos;
  EsStatus status= es_drop_table(engine, name.c_str(), is_partition, &why);
  if (status == EsStatus::NoSuchTable && !is_partition && !tables_that_begin(name + "#P#").empty())
  {
    if (int error= give_partitions_back(current_thd, name))
      return error;
    status= es_drop_tables(engine, (name + "#P#").c_str(), true, &why);
  }
  /* Every engine is asked for every table: only the server knows whether it is an error. */
  if (status == EsStatus::NoSuchTable)
    return ENOENT;
  if (has_detail(status))
    raise(status, why.text);
  return ha_error(status);
}

void shim::drop_database(handlerton *, char *path)
{
  EsError why;
  const std::string database= canonical_name(path);
  std::string last;
  for (const std::string &left : tables_that_begin(database))
  {
    const size_t partition= left.find("#P#");
    const std::string table= left.substr(0, partition);
    if (partition == left.npos || table == last)
      continue;
    last= table;
    if (give_partitions_back(current_thd, table))
      return;
  }
  EsStatus status= es_drop_tables(engine, database.c_str(), true, &why);
  if (status != EsStatus::Ok && status != EsStatus::NoSuchTable && has_detail(status))
    raise(status, why.text);
}

int ha_esker::delete_table(const char *path)
{
  return shim::drop_table(ht, path);
}

/* Is it a name under which ALTER TABLE fills a table, or a partition, that is to take the place of another one? */
static bool is_being_filled(const char *path)
{
  const size_t length= strlen(path), suffix= sizeof(filled_partition) - 1;
  return is_alter_copy(path) || (length > suffix && !strcmp(path + length - suffix, filled_partition));
}

/*
  Is what the engine has under this path, to which a table cannot be renamed, a table or a partition that the server knows? So it is
  where the server renames back what it could not rename. CONVERT PARTITION writes the new table's definition first.
*/
static bool server_knows(THD *thd, const char *path)
{
  if (thd->is_error() || partition_flags_of(thd) & ALTER_PARTITION_CONVERT_OUT)
    return thd->is_error();
  const char *partition= strstr(path, "#P#");
  const std::string table(path, partition ? partition - path : strlen(path));
  return !my_access((table + reg_ext).c_str(), F_OK);
}

int ha_esker::rename_table(const char *from, const char *to)
{
  EsError why;
  const bool shows= is_being_filled(from) && !is_being_filled(to);
  EsStatus status= es_rename_table(engine, table_name(from), table_name(to), shows, &why);
  /* Of a partition the server has deleted what it knew under that name: what is there is nobody's, and in the way of rows that are. */
  if (status == EsStatus::TableExists && std::string(from) == std::string(to) + filled_partition)
  {
    const std::string aside= std::string(table_name(to)) + "#LEFT#";
    status= es_rename_table(engine, table_name(to), aside.c_str(), false, &why);
    if (status == EsStatus::Ok)
    {
      sql_print_warning("%s: '%s', of which the server knew nothing, is '%s' now", product, table_name(to), aside.c_str());
      status= es_rename_table(engine, table_name(from), table_name(to), shows, &why);
    }
  }
  if (status == EsStatus::Ok)
    return 0;
  /* The server says that it could not be renamed, and a number: only the first error is told. */
  if (status == EsStatus::TableExists && !server_knows(ha_thd(), to))
    raise_left_over(why.text);
  else
    (void) raise_plain(status);
  return fail(status, why.text);
}

/*
  Partitions are emptied one after the other, durably each: before the first of them it is asked whether all may be, those that the
  statement names.
*/
EsStatus ha_esker::check_emptied(EsError *why) const
{
  partition_info *parts= table->part_info;
  if (!parts)
    return EsStatus::Ok;
  handler *const *child= static_cast<ha_partition *>(table->file)->get_child_handlers();
  const bool some= thd_sql_command(ha_thd()) != SQLCOM_TRUNCATE;
  bool is_first= true;
  List_iterator<partition_element> each(parts->partitions);
  while (const partition_element *part= each++)
    for (uint i= 0; i < (parts->is_sub_partitioned() ? parts->num_subparts : 1); i++, child++)
    {
      if (some && part->part_state != PART_ADMIN)
        continue;
      if (is_first && *child != this)
        return EsStatus::Ok;
      is_first= false;
      EsStatus status= es_check_copied(static_cast<const ha_esker *>(*child)->table_, why);
      if (status != EsStatus::Ok)
        return status;
    }
  return EsStatus::Ok;
}

int ha_esker::truncate()
{
  ESKER_CALLED();
  EsError why;
  EsStatus status= check_emptied(&why);
  if (status == EsStatus::Ok)
    status= es_truncate_table(engine, name_.c_str(), &why);
  return status == EsStatus::Ok ? 0 : fail(status, why.text);
}

/* For SHOW CREATE TABLE, and for a copy of the table. */
void ha_esker::update_create_info(HA_CREATE_INFO *create_info)
{
  if (!(create_info->used_fields & HA_CREATE_USED_AUTO) && table->found_next_number_field)
    create_info->auto_increment_value= es_next_auto_increment(table_);
}

/*
  Are tables to change places of which a hidden column has the hashes of different keys? A long UNIQUE key has its hashes in
  one of them, by the order of such keys. The server compares keys by their names alone, and would look for duplicates in the
  other's.
*/
static bool swaps_hashes(const TABLE *table, const TABLE *other)
{
  for (const KEY *key= table->key_info; key < table->key_info + table->s->keys; key++)
    for (const KEY *of= other->key_info; of < other->key_info + other->s->keys; of++)
      if (key->algorithm == HA_KEY_ALG_LONG_HASH && of->algorithm == HA_KEY_ALG_LONG_HASH &&
          !my_strcasecmp(system_charset_info, key->name.str, of->name.str) &&
          key->key_part->fieldnr != of->key_part->fieldnr)
        return true;
  return false;
}

/*
  Would rows be read as what they are not? The server lets a column that is stored stand for a virtual one, whose values then are not
  what its expression says, and lie elsewhere.
*/
static bool swaps_virtual(const TABLE *table, const TABLE *other)
{
  Field **of= other->field;
  for (Field **field= table->field; *field && *of; field++, of++)
    if ((*field)->stored_in_db() != (*of)->stored_in_db() || !(*field)->vcol_info != !(*of)->vcol_info)
      return true;
  Record_layout own, others;
  return !own.init(table) || !others.init(other) || !own.is_same(others);
}

/* Do a table and a partition change places, or is it to become one, that must not? */
static bool must_not_swap(THD *thd, const TABLE *table)
{
  const ulonglong swaps= ALTER_PARTITION_EXCHANGE | ALTER_PARTITION_CONVERT_IN;
  const TABLE_LIST *partitioned= thd->lex->query_tables;
  if (!(partition_flags_of(thd) & swaps) || !partitioned || !partitioned->table)
    return false;
  return swaps_hashes(table, partitioned->table) || swaps_virtual(table, partitioned->table);
}

/* May the definition change while the rows stay as they lie? */
bool ha_esker::check_if_incompatible_data(HA_CREATE_INFO *create_info, uint table_changes)
{
  if (table_changes != IS_EQUAL_YES || must_not_swap(ha_thd(), table))
    return COMPATIBLE_DATA_NO;
  if ((create_info->used_fields & HA_CREATE_USED_ROW_FORMAT) && create_info->row_type != get_row_type())
    return COMPATIBLE_DATA_NO;
  /* A counter is raised in its place, see raise_counter(); the greatest value of all rows, from which less counts, a copy knows. */
  if ((create_info->used_fields & HA_CREATE_USED_AUTO) && create_info->auto_increment_value &&
      create_info->auto_increment_value < es_next_auto_increment(table_))
    return COMPATIBLE_DATA_NO;
  const ha_table_option_struct *old_options= table->s->option_struct;
  const ha_table_option_struct *new_options= create_info->option_struct;
  if (old_options && new_options && old_options->compression != new_options->compression)
    return COMPATIBLE_DATA_NO;
  return COMPATIBLE_DATA_YES;
}
