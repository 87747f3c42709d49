/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  What the server leaves to reading by keys: conditions on the columns of a key, filters by row id, many ranges at once.

  Conditions and filters are asked of a batch of entries, before their rows are looked up; the engine then gets the rows of
  those that passed, in one call. A cursor that locks gives rows one at a time, under their locks: those are asked
  of the row as it is now. Many ranges are the server's own DsMrr_impl: it sorts keys and row ids.
*/
#include "ha_esker.h"
#include "errors.h"
#include "rowid_filter.h"

using namespace shim;

namespace
{
bool is_range(Item *condition);

/* Comparisons of a column with constants, or several of them, all of which must hold. */
bool is_range(Item_func *function)
{
  switch (function->functype()) {
  case Item_func::EQ_FUNC:
  case Item_func::LT_FUNC:
  case Item_func::LE_FUNC:
  case Item_func::GT_FUNC:
  case Item_func::GE_FUNC:
  case Item_func::BETWEEN:
    break;
  default:
    return false;
  }
  for (uint i= 0; i < function->argument_count(); i++)
  {
    Item *argument= function->arguments()[i]->real_item();
    if (!argument->const_item() && argument->type() != Item::FIELD_ITEM)
      return false;
  }
  return true;
}

bool is_range(Item *condition)
{
  if (condition->type() == Item::FUNC_ITEM)
    return is_range(static_cast<Item_func *>(condition));
  if (condition->type() != Item::COND_ITEM || static_cast<Item_cond *>(condition)->functype() != Item_func::COND_AND_FUNC)
    return false;
  List_iterator_fast<Item> all(*static_cast<Item_cond *>(condition)->argument_list());
  while (Item *one= all++)
    if (!is_range(one))
      return false;
  return true;
}
}

/*
  Entries tell the columns that the server puts into a condition on a key, see index_flags(); where not all, it keeps it.
  A range of the primary key it keeps, too, as for InnoDB: such a condition passes nearly all entries of the range, and asking it
  of entries first costs more than rows that are looked up for nothing.
*/
Item *ha_esker::idx_cond_push(uint index, Item *condition)
{
  ESKER_CALLED();
  if (index == table_share->primary_key && is_range(condition))
    return condition;
  const KEY *key= table_share->key_info + index;
  for (uint i= 0; i < key->user_defined_key_parts; i++)
    if (key_needs_row(key->key_part + i))
      return condition;
  pushed_idx_cond= condition;
  pushed_idx_cond_keyno= index;
  return nullptr;
}

bool ha_esker::rowid_filter_push(Rowid_filter *filter)
{
  ESKER_CALLED();
  pushed_rowid_filter= filter;
  return false;
}

/* Is anything pushed down that concerns the index which is read? */
bool ha_esker::chooses() const
{
  return (pushed_idx_cond && pushed_idx_cond_keyno == active_index) || (pushed_rowid_filter && rowid_filter_is_active);
}

/* Takes the rows of the batch, or of those behind it, that pass what was pushed down. */
int ha_esker::take_chosen(EsSession *s, EsStatus status, EsBatch *batch)
{
  for (;;)
  {
    if (int error= take_batch(s, status, *batch))
      return error;
    if (batch_.next == batch_.end || likely(!chooses()))
      return 0;
    int error= choose();
    if (!error && !chosen_.empty())
    {
      error= take_batch(s, es_index_choose(index_cursor_, s, chosen_.data(), chosen_.size(), batch), *batch);
      if (!error && batch_.next != batch_.end)
        return 0;
    }
    if (error)
    {
      batch_.clear();
      return error;
    }
    status= es_index_next_batch(index_cursor_, s, batch);
  }
}

/*
  Notes the places in the batch of what passes. The server's checks look at record[0]. They would compare the end of the
  range too, which the engine knows, and which may be of columns that an entry does not tell.
*/
int ha_esker::choose()
{
  const bool has_condition= pushed_idx_cond && pushed_idx_cond_keyno == active_index;
  const bool has_filter= pushed_rowid_filter && rowid_filter_is_active;
  key_range *end= end_range;
  check_result_t result= CHECK_POS;
  end_range= nullptr;
  chosen_.clear();
  for (uint32_t place= 0; batch_.next != batch_.end && result != CHECK_ABORTED_BY_USER; place++)
  {
    memcpy(table->record[0], batch_.next, image_bytes_);
    batch_.next+= batch_.stride;
    row_id_= *batch_.next_id++;
    result= has_condition ? handler_index_cond_check(this) : CHECK_POS;
    if (result == CHECK_POS && has_filter)
      result= handler_rowid_filter_check(this);
    if (result == CHECK_POS)
      chosen_.push_back(place);
    else if (locks_rows() && connection_ && !es_index_was_semi_consistent(index_cursor_))
      es_unlock_row(connection_->session(), table_, row_id_);
  }
  end_range= end;
  return result == CHECK_ABORTED_BY_USER ? HA_ERR_ABORTED_BY_USER : 0;
}

int ha_esker::multi_range_read_init(RANGE_SEQ_IF *ranges, void *init_param, uint count, uint mode,
                                    HANDLER_BUFFER *buffer)
{
  ESKER_CALLED();
  return ds_mrr_.dsmrr_init(this, ranges, init_param, count, mode, buffer);
}

int ha_esker::multi_range_read_next(range_id_t *range)
{
  ESKER_CALLED();
  return ds_mrr_.dsmrr_next(range);
}

/*
  Rows are locked in the order in which they are given: who locks takes one range after the other. So does a partition: the
  server gives it room by what it was told for the index that was asked about last, not for the one that is read, and positions
  of one partition come to lie over another's (ha_partition::multi_range_read_init).
*/
bool ha_esker::takes_ranges_in_turn() const
{
  return locks_rows() || table->part_info;
}

ha_rows ha_esker::multi_range_read_info_const(uint index, RANGE_SEQ_IF *ranges, void *init_param, uint count,
                                              uint *buffer_bytes, uint *flags, Cost_estimate *cost)
{
  ds_mrr_.init(this, table);
  if (takes_ranges_in_turn())
    *flags|= HA_MRR_USE_DEFAULT_IMPL;
  return ds_mrr_.dsmrr_info_const(index, ranges, init_param, count, buffer_bytes, flags, cost);
}

ha_rows ha_esker::multi_range_read_info(uint index, uint ranges, uint keys, uint key_parts, uint *buffer_bytes,
                                        uint *flags, Cost_estimate *cost)
{
  ds_mrr_.init(this, table);
  if (takes_ranges_in_turn())
    *flags|= HA_MRR_USE_DEFAULT_IMPL;
  return ds_mrr_.dsmrr_info(index, ranges, keys, key_parts, buffer_bytes, flags, cost);
}

int ha_esker::multi_range_read_explain_info(uint mode, char *text, size_t bytes)
{
  return ds_mrr_.dsmrr_explain_info(mode, text, bytes);
}
