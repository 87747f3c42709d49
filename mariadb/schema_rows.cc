/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Names of tables as people know them.
*/
#include "schema_rows.h"
#include "strfunc.h"
#include <new>

namespace shim
{
namespace
{
/*
  What is not in the characters of files stays as it is, behind a prefix: what the server has made up, as "#sql-alter-1f-2", without
  one, and names from before there were such characters as the server itself tells them.
*/
std::string decoded(const std::string &file_name, const char *prefix= MYSQL50_TABLE_NAME_PREFIX)
{
  char plain[FN_REFLEN];
  uint errors;
  const uint length= strconvert(&my_charset_filename, file_name.data(), file_name.size(), system_charset_info, plain,
                                sizeof plain, &errors);
  return errors ? prefix + file_name : std::string(plain, length);
}

/* A table's name, and its partition's and subpartition's behind "#P#" and "#SP#": in names themselves '#' is encoded. */
std::string decoded_parts(const std::string &file_name)
{
  std::string all;
  for (size_t at= 0, end; at <= file_name.size(); at= end + 1)
  {
    end= std::min(file_name.find('#', at), file_name.size());
    all+= decoded(file_name.substr(at, end - at), at ? "" : MYSQL50_TABLE_NAME_PREFIX) + (end < file_name.size() ? "#" : "");
  }
  return all;
}
}

Table_name readable(const char *name)
{
  const std::string text= name;
  const size_t slash= text.find(FN_LIBCHAR);
  if (slash == std::string::npos)
    return {"", text};
  /* A temporary one is a file's whole path. */
  if (slash == 0)
    return {"", text.substr(text.rfind(FN_LIBCHAR) + 1)};
  return {decoded(text.substr(0, slash)), decoded_parts(text.substr(slash + 1))};
}

std::string full_name(const char *name)
{
  const Table_name parts= readable(name);
  return parts.schema.empty() ? parts.table : parts.schema + "." + parts.table;
}

extern "C" size_t table_for_people(const char *name, uint8_t *to, size_t room)
try
{
  const std::string text= full_name(name);
  const size_t length= std::min(text.size(), room);
  memcpy(to, text.data(), length);
  return length;
}
catch (const std::bad_alloc &)
{
  return 0;
}
}
