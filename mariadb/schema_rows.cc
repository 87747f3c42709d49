/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Names of tables as people know them.
*/
#include "schema_rows.h"
#include "strfunc.h"

namespace shim
{
namespace
{
std::string decoded(const std::string &file_name)
{
  char plain[FN_REFLEN];
  uint errors;
  return std::string(plain, strconvert(&my_charset_filename, file_name.data(), file_name.size(), system_charset_info,
                                       plain, sizeof plain, &errors));
}
}

Table_name readable(const char *name)
{
  const std::string text= name;
  const size_t slash= text.find(FN_LIBCHAR), parts= std::min(text.find("#P#"), text.size());
  if (slash >= parts)
    return {"", text};
  return {decoded(text.substr(0, slash)), decoded(text.substr(slash + 1, parts - slash - 1)) + text.substr(parts)};
}
}
