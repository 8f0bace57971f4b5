UPDATE run SET is_partial = is_partial WHERE is_partial > 5;
