package com.example.etcli;

import android.app.Activity;
import android.content.Intent;
import android.os.Bundle;
import android.util.Log;
import android.widget.ScrollView;
import android.widget.TextView;

import java.io.File;

/**
 * Shows the tokens of one prompt as they come. The prompt is ids, from the intent that starts the activity:
 *
 * <pre>adb shell am start -n com.example.etcli/.MainActivity --eia ids 1,9690,198 --ei max 32</pre>
 */
public final class MainActivity extends Activity implements Conversation.Listener {
    private static final String TAG = "etcli-example";

    private TextView output;
    private Conversation conversation;

    @Override
    protected void onCreate(Bundle state) {
        super.onCreate(state);
        output = new TextView(this);
        output.setTextIsSelectable(true);
        ScrollView scroll = new ScrollView(this);
        scroll.addView(output);
        setContentView(scroll);

        File config = new File(getFilesDir(), "bundle/runner.cfg");
        conversation = new Conversation(config.getPath());
        say(getIntent());
    }

    @Override
    protected void onNewIntent(Intent intent) {
        super.onNewIntent(intent);
        say(intent);
    }

    @Override
    protected void onDestroy() {
        conversation.close();
        super.onDestroy();
    }

    private void say(Intent intent) {
        int[] ids = intent.getIntArrayExtra("ids");
        if (ids == null) {
            show("Start me with ids: see README.md.\n");
            return;
        }
        conversation.say(ids, intent.getIntExtra("max", 64), this);
    }

    @Override
    public void onToken(int id) {
        show(id + " ");
    }

    @Override
    public void onEnd(String summary) {
        show("\n" + summary + "\n");
    }

    @Override
    public void onFailure(String message) {
        show("\n" + message + "\n");
    }

    private void show(String words) {
        Log.i(TAG, words.trim());
        runOnUiThread(() -> output.append(words));
    }
}
