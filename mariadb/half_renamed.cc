/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Partitioned tables whose renaming was cut short.

  A server that dies while it renames one has given the new name to some of its partitions, and has its own files, by which it looks
  for all of them, under the old one. It knows no table of the new name: who drops that, to rename once more, would drop those rows.
*/
#include "ha_esker.h"
#include "errors.h"
#include "datadict.h"
#include "my_dir.h"
#include "sql_table.h"

using namespace shim;

namespace
{
/* A .par file that is longer is none: 8192 partitions with names of 64 characters, each with a subpartition's. */
const size_t longest_par_file= 16 << 20;

/* Of what is no folder, or none that the server may read, there are no tables. */
bool is_none(int error)
{
  return error == ENOENT || error == ENOTDIR || error == EACCES;
}

/* The names of files and folders in a folder; false: they cannot be told now. */
bool names_in(const std::string &folder, std::vector<std::string> *names)
{
  MY_DIR *files= my_dir(folder.c_str(), MYF(MY_DONT_SORT));
  if (!files)
    return is_none(my_errno);
  for (size_t i= 0; i < files->number_of_files; i++)
    names->emplace_back(files->dir_entry[i].name);
  my_dirend(files);
  return true;
}

bool read_file(const std::string &path, std::string *bytes)
{
  const File file= my_open(path.c_str(), O_RDONLY, MYF(0));
  if (file < 0)
    return is_none(my_errno);
  uchar piece[4096];
  size_t read;
  while ((read= my_read(file, piece, sizeof piece, MYF(0))) && read != MY_FILE_ERROR && bytes->size() < longest_par_file)
    bytes->append(reinterpret_cast<const char *>(piece), read);
  my_close(file, MYF(0));
  return read != MY_FILE_ERROR;
}

/* What stands behind "#P#" in the names of a table's partitions, by its .par file: see ha_partition::create_handler_file(). */
std::vector<std::string> partitions_by(const std::string &bytes)
{
  const size_t word= 4, engines= 3 * word;
  std::vector<std::string> names;
  if (bytes.size() < engines)
    return names;
  const size_t count= uint4korr(reinterpret_cast<const uchar *>(bytes.data()) + 2 * word);
  size_t at= engines + (count + word - 1) / word * word + word;
  for (size_t i= 0; i < count && at < bytes.size(); i++)
  {
    names.emplace_back(bytes.c_str() + at);
    at+= names.back().size() + 1;
  }
  return names;
}

/* Are its partitions of this engine? */
bool is_of_esker(THD *thd, const std::string &table)
{
  char path[FN_REFLEN + 1], buffer[NAME_CHAR_LEN + 1];
  strxnmov(path, sizeof(path) - 1, table.c_str(), reg_ext, NullS);
  LEX_CSTRING name= {buffer, 0}, of_partitions= {nullptr, 0};
  return dd_frm_type(thd, path, &name, &of_partitions, nullptr) == TABLE_TYPE_NORMAL && of_partitions.str &&
         !my_strcasecmp(system_charset_info, of_partitions.str, hton_name(hton)->str);
}

/* Nobody is at work on it: a CREATE that has made no partition yet, say. */
bool is_at_rest(THD *thd, const char *folder, const std::string &file)
{
  char database[NAME_LEN + 1], table[NAME_LEN + 1];
  (void) filename_to_tablename(folder, database, sizeof database);
  (void) filename_to_tablename(file.c_str(), table, sizeof table);
  MDL_request request;
  MDL_REQUEST_INIT(&request, MDL_key::TABLE, database, table, MDL_EXCLUSIVE, MDL_TRANSACTION);
  return !thd->mdl_context.try_acquire_lock(&request) && request.ticket;
}

/* What a table lacks, with the names it should have, if all of that has this name now. */
std::vector<std::pair<std::string, std::string>> lacking(const std::string &name, const std::string &table,
                                                         const std::vector<std::string> &partitions)
{
  std::vector<std::pair<std::string, std::string>> found;
  for (const std::string &partition : partitions)
  {
    const std::string to= table + "#P#" + partition, from= name + "#P#" + partition;
    const bool is_there= es_has_table(engine, to.c_str()), is_here= es_has_table(engine, from.c_str());
    if (is_there == is_here)
      return {};
    if (is_here)
      found.emplace_back(from, to);
  }
  return found;
}

/* Of a table that is in this folder by its .par file. 0, or an error that was raised: what it may need is not to be dropped. */
int give_back(THD *thd, const std::string &name, const std::string &folder, const std::string &table)
{
  const std::string path= folder + FN_LIBCHAR + table, known= canonical_name(path.c_str());
  std::string bytes;
  if (known == name)
    return 0;
  if (!read_file(path + ".par", &bytes))
  {
    my_error(ER_CANT_OPEN_FILE, MYF(0), (path + ".par").c_str(), my_errno);
    return HA_ERR_GENERIC;
  }
  const std::vector<std::string> partitions= partitions_by(bytes);
  if (lacking(name, known, partitions).empty() || !is_of_esker(thd, path))
    return 0;
  if (!is_at_rest(thd, folder.c_str(), table))
  {
    my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
    return HA_ERR_LOCK_WAIT_TIMEOUT;
  }
  for (const auto &one : lacking(name, known, partitions))
  {
    EsError why;
    const EsStatus status= es_rename_table(engine, one.first.c_str(), one.second.c_str(), false, &why);
    if (status != EsStatus::Ok)
    {
      raise(status, why.text);
      return ha_error(status);
    }
    sql_print_warning("%s: '%s', of which the server knew nothing, is '%s' again, as its table lacks that", product,
                      one.first.c_str(), one.second.c_str());
  }
  return 0;
}
}

/** Looks in all databases: a table can be renamed to another one. */
int shim::give_partitions_back(THD *thd, const std::string &name)
{
  const std::string extension= ".par";
  std::vector<std::string> folders;
  bool is_told= names_in(".", &folders);
  for (const std::string &folder : folders)
  {
    std::vector<std::string> files;
    if (folder[0] != '.' && folder[0] != '#')
      is_told= names_in(folder, &files) && is_told;
    for (const std::string &file : files)
    {
      if (file[0] == '#' || file.size() <= extension.size() ||
          file.compare(file.size() - extension.size(), extension.size(), extension))
        continue;
      if (int error= give_back(thd, name, folder, file.substr(0, file.size() - extension.size())))
        return error;
    }
  }
  if (is_told)
    return 0;
  my_error(ER_CANT_READ_DIR, MYF(0), mysql_real_data_home, my_errno);
  return HA_ERR_GENERIC;
}
