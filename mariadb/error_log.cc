/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Error log lines, from the server's threads and from the engine's.
*/
#include "error_log.h"
#include <my_sys.h>
#include <my_pthread.h>

namespace shim
{
namespace
{
class Membership
{
public:
  Membership() : joined_(_my_thread_var() == nullptr && !my_thread_init()) {}
  ~Membership()
  {
    if (joined_)
      my_thread_end();
  }
  Membership(const Membership &)= delete;
  Membership &operator=(const Membership &)= delete;

private:
  bool joined_;
};
}

void join_server()
{
  static thread_local Membership membership;
}

extern "C" void log_line(void *, EsLogLevel level, const char *text, size_t length)
{
  join_server();
  int width= static_cast<int>(length > INT_MAX ? INT_MAX : length);
  switch (level) {
  case EsLogLevel::Error:
    sql_print_error("%s: %.*s", product, width, text);
    break;
  case EsLogLevel::Warning:
    sql_print_warning("%s: %.*s", product, width, text);
    break;
  default:
    sql_print_information("%s: %.*s", product, width, text);
  }
}
}
