select s.store_id, s.store_name
from {{ ref('dim_stores') }} s
left anti join {{ ref('int_store_days') }} d on s.store_id = d.store_id
