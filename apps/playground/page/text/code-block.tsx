/** A block of code with a button that copies it. */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';

/** Longer code is shown without colors: the time of its grammar is not bounded by its length. */
const maxHighlighted = 20_000;
const copiedMs = 2000;

interface CodeBlockProps {
  readonly code: string;
  readonly language: string;
  readonly isOpen: boolean;
}

export function CodeBlock({ code, language, isOpen }: CodeBlockProps): JSX.Element {
  const colored = useHighlighted(code, language, isOpen);
  const [isCopied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(code);
    setCopied(true);
    setTimeout(() => setCopied(false), copiedMs);
  };
  return (
    <figure class="code">
      <figcaption>
        <span>{language || 'text'}</span>
        <button type="button" class="quiet" onClick={() => void copy()}>
          {isCopied ? 'Copied' : 'Copy'}
        </button>
      </figcaption>
      <pre tabIndex={0}>
        <code>{colored ?? code}</code>
      </pre>
    </figure>
  );
}

/** The grammars are loaded with the first code that needs them. */
function useHighlighted(code: string, language: string, isOpen: boolean): ComponentChildren | undefined {
  const [colored, setColored] = useState<ComponentChildren>();
  const isWanted = !isOpen && language !== '' && code.length <= maxHighlighted;
  useEffect(() => {
    if (!isWanted) return undefined;
    let isCurrent = true;
    void import('./highlight.js').then(({ highlight }) => {
      if (isCurrent) setColored(highlight(code, language));
    });
    return () => {
      isCurrent = false;
      setColored(undefined);
    };
  }, [code, language, isWanted]);
  return isWanted ? colored : undefined;
}
