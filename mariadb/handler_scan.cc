/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Reading rows: scans, and single rows by position.

  The engine decodes a batch of rows ahead into images that lie like the server's record; rnd_next copies one. A cursor
  that locks gives batches of one row.
*/
#include "ha_esker.h"
#include "errors.h"

using namespace shim;

int ha_esker::rnd_init(bool scan)
{
  ESKER_CALLED();
  end_cursors();
  scan_behind_= 0;
  if (scan)
    row_id_= 0;
  int error= 0;
  if (!session(&error))
    return error;
  if (likely(!scan || is_sequence() || !copies_table(ha_thd())))
    return 0;
  /* Before anything is renamed: the server takes a failure to drop what was copied for a warning, once the copy has the name. */
  EsError why;
  const EsStatus status= es_check_copied(table_, &why);
  return status == EsStatus::Ok ? 0 : fail(status, why.text);
}

int ha_esker::rnd_end()
{
  ESKER_CALLED();
  end_cursors();
  ds_mrr_.dsmrr_close();
  return unlikely(is_sequence()) ? end_sequence(0) : 0;
}

void ha_esker::close_cursors()
{
  end_cursors();
  close_ended();
}

void ha_esker::close_ended()
{
  if (ended_scan_)
    es_cursor_close(ended_scan_);
  if (ended_fetch_)
    es_cursor_close(ended_fetch_);
  if (ended_index_)
    es_index_close(ended_index_);
  ended_scan_= ended_fetch_= nullptr;
  ended_index_= nullptr;
}

/*
  The server uses a row whose reading has ended: of a table with one row, or read by a whole unique key, all through its statement; a
  duplicate, while it is changed; the last one, where a key of it is to be told, after it has read another. So the blocks and memtables
  that its blobs point into stay until the next reading ends, too, or the handler is reset.
*/
void ha_esker::end_cursors()
{
  if (has_cursors())
  {
    close_ended();
    ended_scan_= scan_cursor_;
    ended_fetch_= fetch_cursor_;
    ended_index_= index_cursor_;
    scan_cursor_= fetch_cursor_= nullptr;
    index_cursor_= nullptr;
  }
  if (!layout_.has_blobs())
    close_ended();
  batch_.clear();
  queued_= 0;
  columns_stale_= refetch_= semi_read_= other_statement_= may_pass_= false;
}

/* For scans, or for single rows. What they point to is kept until the next call. */
EsScanOptions ha_esker::scan_options(bool scan)
{
  EsScanOptions options= {};
  columns_.clear();
  /* Who writes needs the whole row: it becomes the new version. */
  if (lock_ != EsLockMode::Exclusive)
  {
    columns_.resize(layout_.bitmap_bytes());
    layout_.bitmap_of(table->read_set, columns_.data());
    options.columns= columns_.data();
    options.columns_bytes= columns_.size();
  }
  columns_stale_= false;
  options.lock= lock_;
  options.skip_locked= skip_locked_;
  options.semi_consistent= scan && try_semi_;
  return options;
}

int ha_esker::open_cursor(EsCursor **cursor, bool scan)
{
  int error= 0;
  EsSession *s= session(&error);
  if (!s)
    return error;
  EsScanOptions options= scan_options(scan);
  return fail(s, scan ? es_scan_open(s, table_, scan_behind_, &options, cursor) : es_fetch_open(s, table_, &options, cursor));
}

int ha_esker::rnd_next(uchar *buf)
{
  if (likely(batch_.next != batch_.fast_end))
    return take_image(buf);
  ESKER_CALLED();
  return next_slow(buf);
}

/* Makes batch_.next point to an unread row, or HA_ERR_END_OF_FILE. */
int ha_esker::next_batch()
{
  int error= 0;
  EsSession *s= session(&error);
  if (!s)
    return error;
  const Work work(handler_stats, s);
  EsBatch batch;
  if (index_cursor_)
    error= take_chosen(s, es_index_next_batch(index_cursor_, s, &batch), &batch);
  else if (scan_cursor_ || !(error= open_cursor(&scan_cursor_, true)))
    error= take_batch(s, es_cursor_next_batch(scan_cursor_, s, &batch), batch);
  if (error)
    return error;
  return batch_.next == batch_.end ? HA_ERR_END_OF_FILE : 0;
}

int ha_esker::take_batch(const EsSession *session, EsStatus status, const EsBatch &batch)
{
  if (status != EsStatus::Ok)
  {
    batch_.clear();
    return fail(session, status);
  }
  batch_.start= batch_.next= batch_.fast_end= batch.images;
  batch_.stride= batch.stride;
  batch_.next_id= batch.row_ids;
  batch_.end= batch.images + batch.stride * batch.count;
  return 0;
}

/* The row that was read last, now with its lock; *image null: it is gone, and an index goes on with the next one. */
int ha_esker::read_again(const uint8_t **image)
{
  if (!index_cursor_)
    return fetch(row_id_, image);
  int error= 0;
  EsSession *s= session(&error);
  if (!s)
    return error;
  const Work work(handler_stats, s);
  *image= nullptr;
  EsBatch batch;
  return take_chosen(s, es_index_read_again(index_cursor_, s, &batch), &batch);
}

/*
  Who applies rows of a binlog compares each row that he reads with the image that he looks for, and says nothing of those that he
  passes: he reads on. Their locks go, as those of rows do that a statement does not want. They would stay, else, after an XA
  PREPARE, which came after them on the primary, and keep off others of the binlog that come before its end.
*/
void ha_esker::let_go_of_passed()
{
  may_pass_= false;
  unlock_row();
}

int ha_esker::next_slow(uchar *buf)
{
  const uint8_t *image= nullptr;
  queued_= 0;
  if (unlikely(may_pass_))
    let_go_of_passed();
  if (semi_read_)
  {
    /* The server wants the row after all: now wait for its lock. Gone meanwhile: go on. */
    semi_read_= false;
    if (int error= read_again(&image))
      return error;
    if (image)
    {
      memcpy(buf, image, image_bytes_);
      return 0;
    }
  }
  if (columns_stale_ && (scan_cursor_ || index_cursor_))
    refetch_|= columns_grew();
  do
  {
    if (batch_.next == batch_.end)
      if (int error= next_batch())
      {
        batch_.fast_end= batch_.next;
        return error;
      }
    image= batch_.next;
    row_id_= *batch_.next_id++;
    batch_.next+= batch_.stride;
    batch_.fast_end= refetch_ || columns_stale_ || sums_up_ || is_traced() ? batch_.next : batch_.end;
    if (refetch_)
      if (int error= fetch(row_id_, &image))
        return error;
  } while (!image);
  memcpy(buf, image, image_bytes_);
  if (sums_up_)
    blank_generated(buf);
  const THD *thd= table->in_use;
  may_pass_= unlikely(thd->rgi_slave != nullptr) && thd->lex->sql_command == SQLCOM_END && locks_rows();
  if (try_semi_ && locks_rows())
    semi_read_= index_cursor_ ? es_index_was_semi_consistent(index_cursor_)
                              : es_cursor_was_semi_consistent(scan_cursor_);
  return 0;
}

/*
  The bits of generated columns, which are not read, as a new row has them. What lies there otherwise is whatever the row's writer had,
  and that of a replica has something else.
*/
void ha_esker::blank_generated(uchar *buf) const
{
  const uchar *defaults= table->s->default_values, *record= table->record[0];
  for (Field **f= table->vfield; *f; f++)
  {
    const Field *field= *f;
    if (field->null_ptr)
    {
      const size_t at= field->null_ptr - record;
      buf[at]= static_cast<uchar>((buf[at] & ~field->null_bit) | (defaults[at] & field->null_bit));
    }
    if (field->type() != MYSQL_TYPE_BIT)
      continue;
    const Field_bit *bits= static_cast<const Field_bit *>(field);
    const size_t at= bits->bit_ptr - record;
    if (bits->bit_len)
      set_rec_bits(get_rec_bits(defaults + at, bits->bit_ofs, bits->bit_len), buf + at, bits->bit_ofs, bits->bit_len);
  }
}

/* CHECKSUM TABLE: of the same rows the same sum, wherever they were written, and in InnoDB's tables. */
int ha_esker::calculate_checksum()
{
  sums_up_= table->vfield != nullptr;
  const int error= handler::calculate_checksum();
  sums_up_= false;
  return error;
}

/* The row with its lock, if the statement locks; *image null: there is no such row. */
int ha_esker::fetch(uint64_t row_id, const uint8_t **image)
{
  int error= 0;
  EsSession *s= session(&error);
  if (!s)
    return error;
  const Work work(handler_stats, s);
  if (!fetch_cursor_ && (error= open_cursor(&fetch_cursor_, false)))
    return error;
  EsStatus status= es_cursor_fetch(fetch_cursor_, s, row_id, image);
  return fail(s, status);
}

/* Is a column wanted that the cursors do not fill in? Then the fetch cursor is made anew. */
bool ha_esker::columns_grew()
{
  columns_stale_= false;
  if (columns_.empty())
    return false;
  std::vector<uchar> wanted(layout_.bitmap_bytes());
  layout_.bitmap_of(table->read_set, wanted.data());
  for (size_t i= 0; i < wanted.size(); i++)
    if (wanted[i] & ~columns_[i])
    {
      es_cursor_close(fetch_cursor_);
      fetch_cursor_= nullptr;
      return true;
    }
  return false;
}

/*
  Who applies rows of a binlog gets the share's own set of all columns to find a row (Rows_log_event::find_row()), and the next event
  of the statement takes columns out of whatever set is the table's: from then on "all columns" would be fewer for every session.
  An engine whose position is its primary key is not asked so. The table gets sets of its own.
*/
static void keep_set_of_all(TABLE *table)
{
  const THD *thd= table->in_use;
  if (likely(!thd || (!thd->rgi_slave && !thd->rgi_fake)))
    return;
  const MY_BITMAP *all= &table->s->all_set;
  if (table->read_set == all)
  {
    bitmap_set_all(&table->def_read_set);
    table->read_set= &table->def_read_set;
  }
  if (table->write_set == all)
  {
    bitmap_set_all(&table->def_write_set);
    table->write_set= &table->def_write_set;
  }
}

/* The sets may change and change back between two rows: only the next read looks at them. */
void ha_esker::column_bitmaps_signal()
{
  ESKER_CALLED();
  keep_set_of_all(table);
  if (!scan_cursor_ && !fetch_cursor_ && !index_cursor_)
    return;
  columns_stale_= true;
  batch_.fast_end= batch_.next;
}

int ha_esker::rnd_pos(uchar *buf, uchar *pos)
{
  ESKER_CALLED();
  /* A scan that goes on beside it does not fill in the new columns either. */
  if (columns_stale_ && fetch_cursor_ && columns_grew())
    refetch_= scan_cursor_ || index_cursor_;
  uint64_t row_id= mi_uint8korr(pos);
  const uint8_t *image;
  if (int error= fetch(row_id, &image))
    return error;
  if (!image)
    return HA_ERR_KEY_NOT_FOUND;
  memcpy(buf, image, image_bytes_);
  if (lock_duplicate_)
    fill_nulls(buf);
  row_id_= row_id;
  return 0;
}

/* Where ON DUPLICATE KEY UPDATE asks whether a row changes, the server compares the bytes of NULLs, too: as InnoDB has them. */
void ha_esker::fill_nulls(uchar *buf) const
{
  for (Field **field= table->field; *field; field++)
    if ((*field)->stored_in_db() && (*field)->is_null_in_record(buf))
    {
      const uint offset= (*field)->offset(table->record[0]);
      memcpy(buf + offset, table->s->default_values + offset, (*field)->pack_length_in_rec());
    }
}

void ha_esker::position(const uchar *)
{
  ESKER_CALLED();
  /* Big-endian: compares as bytes do. */
  mi_int8store(ref, row_id_);
}

/*
  A partitioned table that is read in the order of a key reads one row ahead of each partition, and sorts them. What is written into a
  partition meanwhile, a row that moves there, or what is left of one behind a portion of time, is not the row that waits.
*/
void ha_esker::return_record_by_parent()
{
  if (queued_)
    row_id_= queued_;
}

void ha_esker::unlock_row()
{
  ESKER_CALLED();
  if (semi_read_)
    semi_read_= false;
  else if (locks_rows() && connection_)
    es_unlock_row(connection_->session(), table_, row_id_);
}
