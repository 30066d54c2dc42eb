"""Prints which of some words it hears: recognise.py RATE 'WORD WORD …' <SAMPLES, 16 bit, mono."""

import sys

from pocketsphinx import Decoder


def main() -> None:
    rate, words = int(sys.argv[1]), sorted(set(sys.argv[2].split()))
    decoder = Decoder(samprate=rate, nfft=1024 if rate > 16_000 else 512, lm=None, loglevel="FATAL")
    grammar = f"#JSGF V1.0; grammar words; public <words> = ( {' | '.join(words)} )+;"
    decoder.add_jsgf_string("words", grammar)
    decoder.activate_search("words")
    decoder.start_utt()
    decoder.process_raw(sys.stdin.buffer.read(), full_utt=True)
    decoder.end_utt()
    heard = decoder.hyp()
    print(heard.hypstr if heard else "")


if __name__ == "__main__":
    main()
