package com.example.tracks;

import org.junit.Ignore;
import org.junit.Test;

public class ScreensTest {
    @Test
    public void trackIsClean() {
        Screen.show(TrackActivity.class);
    }

    @Test
    public void historyIsKeptByAStatic() {
        Screen.show(HistoryActivity.class);
    }

    @Test
    public void recordingIsKeptByItsListener() {
        Screen.show(RecordingActivity.class);
    }

    @Ignore("not yet")
    @Test
    public void later() {}
}
