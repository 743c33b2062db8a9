# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""What the independent reproduction of Bento published (Gootzen, arXiv:2112.06810): figures, and ratios to ext4-j."""

# Table 3, MB/s, or operations per second for createfiles and deletefiles: ext4-o, ext4-j, Bento-fs, Bento-user. Its
# threads were 1 and 18; here T1, and Tn for as many as twice the processors.
TABLE_3 = {
    "seq_read 4k T1": (2713, 2733, 2951, 3494),
    "seq_read 128k T1": (4211, 4449, 4959, 5077),
    "seq_read 128k Tn": (11978, 12423, 10431, 10151),
    "rand_read 4k T1": (1911, 1365, 1365, 1775),
    "rand_read 128k Tn": (4097, 4097, 4097, 4097),
    "seq_write 4k T1": (1000, 440, 1333, 5.9),
    "seq_write 128k T1": (1300, 500, 1333, 6.3),
    "seq_write 1024k T1": (1333, 489, 2000, 6.3),
    "rand_write 4k T1": (1024, 437, 1229, 13.8),
    "rand_write 128k T1": (2361, 671, 2729, 13.9),
    "rand_write 128k Tn": (2081, 628, 2244, 13.7),
    "createfiles T1": (132476, 99089, 124981, 2544),
    "createfiles Tn": (105344, 88531, 57687, 2674),
    "deletefiles T1": (27494, 27494, 27494, 1196),
    # Applications, thousands of operations per second.
    "varmail": (144, 120, 76, 1.5),
    "fileserver": (313, 41, 221, 0.5),
    "webserver": (753, 690, 636, 16.6),
}

# Seconds: ext4-o, ext4-j, Bento-fs, Bento-user; None where that failed.
SECONDS = {
    "grep -r": (1.16, 1.25, 1.77, 17.58),
    "untar": (5.27, 12.01, 4.13, None),
    "tar": (4.52, 10.54, 3.61, None),
    "git clone": (1.44, 1.29, 1.47, 6.85),
}

# Microseconds with fio (512 B, O_DIRECT), Bento-fs and ext4-j.
LATENCY_US = {
    "latency seq_read p50": (2.0, 0.6), "latency seq_read p90": (2.2, 0.8), "latency seq_read p99": (2.6, 1.0),
    "latency seq_write p50": (2.5, 1.9), "latency seq_write p90": (3.0, 5.1), "latency seq_write p99": (3.6, 17.6),
    "latency rand_write p50": (78.1, 18.0), "latency rand_write p90": (86.1, 36.9),
    "latency rand_write p99": (112.6, 50.8),
}

# Bento-fs to ext4-j on a RAM block device.
RAM = {"seq_read 128k T1 (RAM)": 0.86, "seq_read 128k Tn (RAM)": 0.84, "rand_read 128k T1 (RAM)": 1.00,
       "seq_write 128k T1 (RAM)": 2.69, "rand_write 128k T1 (RAM)": 3.99, "rand_write 128k Tn (RAM)": 4.06}


def as_published(row: str) -> str:
    """A row's name with Tn in place of a number of threads above 1."""
    words = row.split(" ")
    return " ".join("Tn" if word.startswith("T") and word[1:].isdigit() and word != "T1" else word for word in words)


def ratios(row: str) -> tuple[float | None, float | None] | None:
    """Speed of Bento-fs and of Bento-user in relation to ext4-j; None where nothing was published."""
    row = as_published(row)
    if row in TABLE_3:
        _, journal, kernel, user = TABLE_3[row]
        return kernel / journal, user / journal
    if row in SECONDS:
        _, journal, kernel, user = SECONDS[row]
        return journal / kernel, journal / user if user is not None else None
    if row in LATENCY_US:
        kernel, journal = LATENCY_US[row]
        return journal / kernel, None
    if row in RAM:
        return RAM[row], None
    return None
