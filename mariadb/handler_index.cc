/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Reading by keys: the rows of a range of an index, in its order or against it.

  The engine gives rows in batches, as it does to a scan, and never beyond the range that it was told; who asks for more
  gets it by a seek of its own.
*/
#include "ha_esker.h"
#include "errors.h"

using namespace shim;

int ha_esker::index_init(uint, bool)
{
  ESKER_CALLED();
  end_cursors();
  int error= 0;
  return session(&error) ? 0 : error;
}

int ha_esker::index_end()
{
  ESKER_CALLED();
  end_cursors();
  ds_mrr_.dsmrr_close();
  return 0;
}

/*
  A key's part of a TINYTEXT may be longer than the column can be: 64 characters of 4 bytes each, say. The server's own length byte has
  what is left of that, 0 bytes of 256.
*/
static void bound_tiny_blobs(const KEY *info, uint count, const uchar *key, uchar *image)
{
  for (const KEY_PART_INFO *part= info->key_part; part < info->key_part + count; key+= part->store_length, part++)
  {
    if (!(part->key_part_flag & HA_BLOB_PART) || (part->null_bit && *key) ||
        static_cast<const Field_blob *>(part->field)->pack_length_no_ptr() != 1)
      continue;
    const uint length= uint2korr(key + (part->null_bit ? 1 : 0));
    image[part->offset]= static_cast<uchar>(length < 255 ? length : 255);
  }
}

/*
  A bound at a key of the server's, as a row image in which the columns of its first parts are filled in. `place`: which of
  the two images to use.
*/
EsKeyBound ha_esker::bound_at(uint index, const uchar *key, key_part_map parts, bool behind, uint place)
{
  const size_t stride= table->s->rec_buff_length;
  if (key_images_.empty())
  {
    key_images_.resize(2 * stride);
    memcpy(key_images_.data(), table->s->default_values, table->s->reclength);
    memcpy(key_images_.data() + stride, table->s->default_values, table->s->reclength);
  }
  uchar *image= key_images_.data() + place * stride;
  EsKeyBound bound= {};
  bound.image= image;
  bound.behind= behind;
  /* HA_WHOLE_KEY has the bits of parts that there are not. */
  uint count= 0;
  while (count < table->key_info[index].user_defined_key_parts && parts & (key_part_map{1} << count))
    count++;
  bound.parts= index_parts(table->key_info + index, count);
  /* The end of a LIKE may be longer than the column: what is cut off then is no error of the statement's. */
  Check_level_instant_set quiet(ha_thd(), CHECK_FIELD_IGNORE);
  key_restore(image, key, table->key_info + index, calculate_key_len(table, index, key, parts));
  bound_tiny_blobs(table->key_info + index, count, key, image);
  return bound;
}

EsKeyBound ha_esker::end_bound(uint index, const key_range *end)
{
  if (!end)
    return {};
  return bound_at(index, end->key, end->keypart_map, end->flag != HA_READ_BEFORE_KEY, 1);
}

int ha_esker::open_index()
{
  int error= 0;
  EsSession *s= session(&error);
  if (!s)
    return error;
  EsScanOptions options= scan_options(true);
  /*
    By any other key a row may have an entry that is passed over, since nobody has committed it, and one that is waited for:
    if it moved against the direction of the scan it would be met at neither.
  */
  options.semi_consistent&= active_index == table_share->primary_key;
  /* By these the server looks whether a key is free, in the midst of a write. */
  const KEY *key= table->key_info + active_index;
  options.passes_gone= server_checks_ && (key->algorithm == HA_KEY_ALG_LONG_HASH || key->without_overlaps);
  return fail(s, es_index_open(s, table_, active_index, &options, &index_cursor_));
}

/* The first row of the range, which is looked for anew. */
int ha_esker::seek(uchar *buf, const EsKeyRange &range, bool backward)
{
  if (semi_read_ && index_cursor_ && !other_statement_)
  {
    /* The server asks again for a row that it has seen without its lock: this time it waits. */
    const uint8_t *image;
    if (int error= read_again(&image))
      return error;
  }
  semi_read_= may_pass_= false;
  if (index_cursor_ && (other_statement_ || (columns_stale_ && columns_grew())))
  {
    es_index_close(index_cursor_);
    index_cursor_= nullptr;
  }
  refetch_= other_statement_= false;
  if (!index_cursor_)
    if (int error= open_index())
      return error;
  backward_= backward;
  if (int error= seek_batch(range))
    return error;
  return next_slow(buf);
}

int ha_esker::seek_batch(const EsKeyRange &range)
{
  int error= 0;
  EsSession *s= session(&error);
  if (!s)
    return error;
  const Work work(handler_stats, s);
  EsBatch batch;
  return take_chosen(s, es_index_seek(index_cursor_, s, &range, backward_, chooses(), &batch), &batch);
}

int ha_esker::index_read_map(uchar *buf, const uchar *key, key_part_map parts, enum ha_rkey_function find)
{
  ESKER_CALLED();
  EsKeyRange range= {};
  bool backward= false;
  same_key_bytes_= 0;
  switch (find) {
  case HA_READ_KEY_EXACT:
  case HA_READ_PREFIX:
  case HA_READ_PREFIX_LAST:
    range.from= bound_at(active_index, key, parts, false, 0);
    range.to= range.from;
    range.to.behind= true;
    backward= find == HA_READ_PREFIX_LAST;
    if (!backward)
      same_key_bytes_= calculate_key_len(table, active_index, key, parts);
    break;
  case HA_READ_KEY_OR_NEXT:
  case HA_READ_AFTER_KEY:
    range.from= bound_at(active_index, key, parts, find == HA_READ_AFTER_KEY, 0);
    range.to= end_bound(active_index, read_range_end_);
    break;
  case HA_READ_BEFORE_KEY:
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST_OR_PREV:
    range.to= bound_at(active_index, key, parts, find != HA_READ_BEFORE_KEY, 0);
    backward= true;
    break;
  default:
    return HA_ERR_WRONG_COMMAND;
  }
  int error= seek(buf, range, backward);
  return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error;
}

/* A whole unique key is looked up in one call; what it found needs no cursor to live in. */
int ha_esker::index_read_idx_map(uchar *buf, uint index, const uchar *key, key_part_map parts,
                                 enum ha_rkey_function find)
{
  ESKER_CALLED();
  const KEY *by= table->key_info + index;
  const key_part_map all= make_prev_keypart_map(by->user_defined_key_parts);
  const bool is_unique= (by->flags & (HA_NOSAME | HA_NULL_PART_KEY)) == HA_NOSAME && by->algorithm != HA_KEY_ALG_LONG_HASH;
  const bool is_whole= find == HA_READ_KEY_EXACT && is_unique && (parts & all) == all;
  if (!is_whole || locks_rows() || pushed_idx_cond || pushed_rowid_filter || has_cursors() || layout_.has_blobs())
  {
    /* By which a partitioned table finds the row that is a duplicate. */
    const int found= handler::index_read_idx_map(buf, index, key, parts, find);
    if (!found && lock_duplicate_)
      fill_nulls(buf);
    return found;
  }
  int error= 0;
  EsSession *s= session(&error);
  if (!s)
    return error;
  const EsKeyBound bound= bound_at(index, key, parts, false, 0);
  const EsScanOptions options= scan_options(false);
  const Work work(handler_stats, s);
  uint64_t row_id;
  if ((error= fail(s, es_row_by_key(s, table_, index, bound.image, bound.parts, &options, buf, &row_id))))
    return error;
  if (!row_id)
    return HA_ERR_KEY_NOT_FOUND;
  row_id_= row_id;
  return 0;
}

int ha_esker::index_first(uchar *buf)
{
  ESKER_CALLED();
  EsKeyRange range= {};
  range.to= end_bound(active_index, read_range_end_);
  same_key_bytes_= 0;
  return seek(buf, range, false);
}

int ha_esker::index_last(uchar *buf)
{
  ESKER_CALLED();
  same_key_bytes_= 0;
  return seek(buf, {}, true);
}

int ha_esker::index_next(uchar *buf)
{
  if (likely(!backward_) && likely(batch_.next != batch_.fast_end))
    return take_image(buf);
  ESKER_CALLED();
  return go_on(buf, false);
}

int ha_esker::index_prev(uchar *buf)
{
  if (likely(backward_) && likely(batch_.next != batch_.fast_end))
    return take_image(buf);
  ESKER_CALLED();
  return go_on(buf, true);
}

int ha_esker::index_next_same(uchar *buf, const uchar *key, uint bytes)
{
  if (backward_ || bytes != same_key_bytes_)
    return handler::index_next_same(buf, key, bytes);
  if (likely(batch_.next != batch_.fast_end))
    return take_image(buf);
  ESKER_CALLED();
  return next_slow(buf);
}

/* The next row in a direction, beyond the range that was sought too. */
int ha_esker::go_on(uchar *buf, bool backward)
{
  if (!index_cursor_)
    return HA_ERR_END_OF_FILE;
  if (backward == backward_ && !other_statement_)
  {
    const int error= next_slow(buf);
    if (error != HA_ERR_END_OF_FILE || within_range_)
      return error;
  }
  if (int error= turn(backward))
    return error;
  return next_slow(buf);
}

/* On from the row that was given last, in a direction that the cursor does not have, or beyond its range. */
int ha_esker::turn(bool backward)
{
  int error= 0;
  EsSession *s= session(&error);
  if (!s)
    return error;
  const Work work(handler_stats, s);
  semi_read_= false;
  backward_= backward;
  same_key_bytes_= 0;
  const size_t taken= batch_.start ? static_cast<size_t>(batch_.next - batch_.start) / batch_.stride : 0;
  EsBatch batch;
  const EsStatus status= es_index_turn(index_cursor_, s, taken, backward, other_statement_, &batch);
  if ((error= take_chosen(s, status, &batch)))
    return error;
  other_statement_= false;
  return 0;
}

/* Without comparing keys: the engine does not go past the range's end. */
int ha_esker::read_range_first(const key_range *start, const key_range *end, bool is_equal, bool)
{
  ESKER_CALLED();
  eq_range= is_equal;
  set_end_range(end);
  range_key_part= table->key_info[active_index].key_part;
  read_range_end_= end;
  const int error= start ? ha_index_read_map(table->record[0], start->key, start->keypart_map, start->flag)
                         : ha_index_first(table->record[0]);
  read_range_end_= nullptr;
  return error == HA_ERR_KEY_NOT_FOUND ? HA_ERR_END_OF_FILE : error;
}

int ha_esker::read_range_next()
{
  ESKER_CALLED();
  within_range_= true;
  const int error= ha_index_next(table->record[0]);
  within_range_= false;
  return error;
}

ha_rows ha_esker::records_in_range(uint index, const key_range *min, const key_range *max, page_range *)
{
  ESKER_CALLED();
  int error= 0;
  EsSession *s= session(&error);
  if (!s)
    return HA_POS_ERROR;
  EsKeyRange range= {};
  if (min)
    range.from= bound_at(index, min->key, min->keypart_map, min->flag == HA_READ_AFTER_KEY, 0);
  range.to= end_bound(index, max);
  const Work work(handler_stats, s);
  uint64_t rows;
  if (fail(s, es_estimate_rows(s, table_, index, &range, &rows)))
    return HA_POS_ERROR;
  /* The optimizer takes 0 for certain. */
  return std::max<ha_rows>(weighed_rows(index, rows), 1);
}

/*
  Of the statement as this one is; the server asks it to lock as a reader does. What it is told as a partition's name is
  that of the table.
*/
handler *ha_esker::clone(const char *, MEM_ROOT *root)
{
  handler *copy= handler::clone(name_.c_str(), root);
  if (ha_esker *other= static_cast<ha_esker *>(copy))
  {
    other->read_lock_= lock_;
    other->skip_locked_= skip_locked_;
    other->is_clone_= true;
  }
  return copy;
}
