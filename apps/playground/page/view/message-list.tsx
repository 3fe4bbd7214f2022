/** The messages of a conversation. The browser skips layout and painting of those outside the view. */
import { useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useRef } from 'preact/hooks';
import type { Chat } from '../state/chat.js';
import type { SettingsStore } from '../state/settings.js';
import { MessageView } from './message-view.js';

interface MessageListProps {
  readonly chat: Chat;
  readonly settings: SettingsStore;
}

/** How near to the end, in CSS pixels, the reader follows what is written. */
const followDistance = 120;

export function MessageList({ chat, settings }: MessageListProps): JSX.Element {
  const list = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const isEmpty = chat.messages.value.length === 0;
  useSignalEffect(() => {
    // runs again for a new message, and when the last one grows
    void chat.messages.value.at(-1)?.value;
    if (follows.current) requestAnimationFrame(() => list.current?.scrollTo({ top: list.current.scrollHeight }));
  });
  const onScroll = (): void => {
    const element = list.current;
    if (element === null) return;
    follows.current = element.scrollHeight - element.scrollTop - element.clientHeight < followDistance;
  };
  return (
    <section
      class="messages"
      aria-label="Conversation"
      aria-busy={chat.isAnswering.value}
      tabIndex={0}
      ref={list}
      onScroll={onScroll}
    >
      {isEmpty && <Welcome chat={chat} />}
      {chat.messages.value.map((message, position) => (
        <MessageView
          key={position}
          message={message}
          position={position}
          isLast={position === chat.messages.value.length - 1}
          chat={chat}
          settings={settings}
        />
      ))}
    </section>
  );
}

function Welcome({ chat }: Pick<MessageListProps, 'chat'>): JSX.Element {
  const model = chat.model();
  if (model === undefined) return <p class="welcome">No model is loaded.</p>;
  return (
    <div class="welcome">
      <p>
        {model.id} answers
        {model.contextSize === undefined
          ? ', after it has been loaded for the first request.'
          : `, with a context of ${model.contextSize.toLocaleString('en')} tokens.`}
      </p>
      {model.notices.map((notice) => (
        <p key={notice}>
          <small>{notice}</small>
        </p>
      ))}
    </div>
  );
}
