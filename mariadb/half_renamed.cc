/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Partitioned tables whose renaming was cut short.

  A server that dies while it renames one has given the new name to some of its partitions, and has its own files, by which it looks
  for all of them, under the old one. It knows no table of the new name: who drops that, to rename once more, would drop those rows.
*/
#include "ha_esker.h"
#include "datadict.h"
#include "my_dir.h"
#include "sql_table.h"

using namespace shim;

namespace
{
/* A .par file that is longer is none: 8192 partitions with names of 64 characters, each with a subpartition's. */
const size_t longest_par_file= 16 << 20;

/* The names of files and folders in a folder. */
std::vector<std::string> names_in(const char *folder)
{
  std::vector<std::string> names;
  if (MY_DIR *files= my_dir(folder, MYF(MY_DONT_SORT | MY_WANT_STAT)))
  {
    for (size_t i= 0; i < files->number_of_files; i++)
      names.emplace_back(files->dir_entry[i].name);
    my_dirend(files);
  }
  return names;
}

/* Whatever cannot be read is empty. */
std::string bytes_of(const std::string &path)
{
  std::string bytes;
  const File file= my_open(path.c_str(), O_RDONLY, MYF(0));
  if (file < 0)
    return bytes;
  uchar piece[4096];
  size_t read;
  while ((read= my_read(file, piece, sizeof piece, MYF(0))) && read != MY_FILE_ERROR && bytes.size() < longest_par_file)
    bytes.append(reinterpret_cast<const char *>(piece), read);
  my_close(file, MYF(0));
  return bytes;
}

/* What stands behind "#P#" in the names of a table's partitions, by its .par file: see ha_partition::create_handler_file(). */
std::vector<std::string> partitions_by(const std::string &par_file)
{
  const size_t word= 4, engines= 3 * word;
  const std::string bytes= bytes_of(par_file);
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

/* Gives a table what it lacks, if all of that has this name now. */
bool give_back(const std::string &name, const std::string &table, const std::vector<std::string> &partitions)
{
  std::vector<std::pair<std::string, std::string>> lacking;
  for (const std::string &partition : partitions)
  {
    const std::string to= table + "#P#" + partition, from= name + "#P#" + partition;
    const bool is_there= es_has_table(engine, to.c_str()), is_here= es_has_table(engine, from.c_str());
    if (is_there == is_here)
      return false;
    if (is_here)
      lacking.emplace_back(from, to);
  }
  for (const auto &one : lacking)
  {
    EsError why;
    if (es_rename_table(engine, one.first.c_str(), one.second.c_str(), false, &why) != EsStatus::Ok)
      return false;
    sql_print_warning("%s: '%s', of which the server knew nothing, is '%s' again, as its table lacks that", product,
                      one.first.c_str(), one.second.c_str());
  }
  return !lacking.empty();
}
}

/** Looks in all databases: a table can be renamed to another one. */
bool shim::give_partitions_back(THD *thd, const std::string &name)
{
  const std::string extension= ".par";
  if (!thd)
    return false;
  for (const std::string &folder : names_in("."))
  {
    if (folder[0] == '.' || folder[0] == '#')
      continue;
    for (const std::string &file : names_in(folder.c_str()))
    {
      if (file[0] == '#' || file.size() <= extension.size() ||
          file.compare(file.size() - extension.size(), extension.size(), extension))
        continue;
      const std::string table= file.substr(0, file.size() - extension.size()), path= folder + FN_LIBCHAR + table;
      const std::string known= canonical_name(path.c_str());
      if (known != name && is_of_esker(thd, path) && is_at_rest(thd, folder.c_str(), table) &&
          give_back(name, known, partitions_by(path + extension)))
        return true;
    }
  }
  return false;
}
