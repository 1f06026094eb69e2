package com.example.etcli;

import android.app.Activity;
import android.content.Intent;
import android.os.Bundle;
import android.util.Log;
import android.widget.ScrollView;
import android.widget.TextView;

import java.io.File;

import org.etcli.runner.Runner;

/**
 * Shows the tokens of one prompt as they come. The prompt is ids, from the intent that starts the activity:
 *
 * <pre>adb shell am start -n com.example.etcli/.MainActivity --eia ids 1,9690,198 --ei max 32</pre>
 *
 * With {@code --ef temperature 0.8 --ef top_p 0.95 --el seed 7} tokens are drawn.
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
        conversation.say(ids, options(intent), this);
    }

    private static Runner.DecodeOptions options(Intent intent) {
        return new Runner.DecodeOptions()
                .maxNewTokens(intent.getIntExtra("max", 64))
                .temperature(intent.getFloatExtra("temperature", 0))
                .topP(intent.getFloatExtra("top_p", 1))
                .seed(intent.getLongExtra("seed", 0));
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
