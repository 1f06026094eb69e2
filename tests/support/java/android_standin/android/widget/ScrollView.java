package android.widget;

import android.content.Context;
import android.view.View;

/** Stand-in. */
public class ScrollView extends View {
    public ScrollView(Context context) {}

    public void addView(View child) {}
}
