"""The admission webhook: sends adapter pods through our scheduler, and checks pods, pools and
vpods.
"""
