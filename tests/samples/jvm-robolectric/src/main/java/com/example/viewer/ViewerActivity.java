package com.example.viewer;

import android.app.Activity;
import android.os.Bundle;
import android.widget.TextView;

/** Shows a page. */
public class ViewerActivity extends Activity {
    @Override
    protected void onCreate(Bundle state) {
        super.onCreate(state);
        TextView text = new TextView(this);
        text.setText("page");
        setContentView(text);
    }
}
