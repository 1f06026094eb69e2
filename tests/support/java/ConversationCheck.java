package com.example.etcli;

import java.util.concurrent.CountDownLatch;

import org.etcli.runner.Runner;

/** The example app's conversation on a desktop's virtual machine: {@code ConversationCheck CONFIG IDS...}, a turn each. */
public final class ConversationCheck {
    public static void main(String[] words) throws Exception {
        try (Conversation conversation = new Conversation(words[0])) {
            for (int turn = 1; turn < words.length; turn++) {
                String[] parts = words[turn].split(",");
                int[] ids = new int[parts.length];
                for (int i = 0; i < parts.length; i++) {
                    ids[i] = Integer.parseInt(parts[i]);
                }
                CountDownLatch ended = new CountDownLatch(1);
                conversation.say(ids, new Runner.DecodeOptions().maxNewTokens(3), new Conversation.Listener() {
                    @Override
                    public void onToken(int id) {
                        System.out.println("token " + id);
                    }

                    @Override
                    public void onEnd(String summary) {
                        System.out.println("end " + summary);
                        ended.countDown();
                    }

                    @Override
                    public void onFailure(String message) {
                        System.out.println("failure " + message);
                        ended.countDown();
                    }
                });
                ended.await();
            }
        }
    }
}
